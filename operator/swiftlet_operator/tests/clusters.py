"""Clusters that tests are about, as people write them."""

from __future__ import annotations

from typing import Any

import yaml

from swiftlet.crd import Resource, StorageClusterSpec, parse_storage_cluster
from swiftlet_operator.build import Policy, Site

META: dict[str, Any] = {
    "name": "store",
    "namespace": "data",
    "uid": "0c1de1c2-0000-4000-8000-000000000001",
    "generation": 3,
}

SPECS = {
    "minimal": """
        pools:
        - {name: disks, replicas: 3, storage: {size: 10Gi}}
        """,
    "three-zones": """
        image: registry.example.org/swiftlet:1.2
        imagePullPolicy: Always
        imagePullSecrets: [{name: pull}]
        pools:
        - name: fast
          replicas: 7
          zones: [a, b, c]
          region: north
          devicesPerPod: 2
          storage: {className: nvme, size: 2Ti}
          nodeSelector: {disk: nvme}
          tolerations: [{key: storage, operator: Exists, effect: NoSchedule}]
          resources: {requests: {cpu: 2, memory: 4Gi}, limits: {memory: 4Gi}}
        proxy:
          replicas: 3
          workers: 4
          storageUrl: https://objects.example.org
          service: {type: LoadBalancer, port: 8443, annotations: {example.org/lb: internal}}
        container: {replicas: 3, zones: [a, b, c], storage: {className: nvme, size: 50Gi}}
        monitoring: {enabled: true}
        auth: {tokenLifeSeconds: 3600}
        replicator: {intervalSeconds: 30, concurrency: 8}
        deletionPolicy: Delete
        """,
    "sumo": """
        pools:
        - {name: all, replicas: 4, roles: [proxy, object], storage: {size: 100Gi}}
        proxy: {replicas: 0, service: {type: NodePort, nodePort: 30080}}
        metadata: {replicas: 0}
        containerSync: {realmsSecretRef: {name: realms}, current: //company/berlin}
        """,
    "rdma": """
        rdma: {resource: rdma/hca, nodeSelector: {rdma: "true"}, networks: fabric}
        pools:
        - {name: near, replicas: 3, storage: {size: 1Ti}, rdma: {mode: required, resource: rdma/hca_shared_a, count: 2}}
        - {name: far, replicas: 3, storage: {size: 1Ti}}
        - {name: slow, replicas: 3, storage: {size: 1Ti}, rdma: {mode: disabled}}
        """,
    "tls": """
        pools:
        - {name: all, replicas: 3, roles: [proxy, object], storage: {size: 10Gi}}
        proxy: {replicas: 1}
        monitoring: {enabled: true}
        tls: {secretRef: {name: objects-example-org}}
        keys: {generation: 2}
        """,
    "external-redis": """
        pools:
        - {name: disks, replicas: 3, storage: {size: 10Gi}}
        redis:
          mode: external
          address: "redis.example.org:6379"
          passwordSecretRef: {name: their-redis}
          tls: {enabled: true, caSecretRef: {name: their-authority}}
        """,
    "shaped": """
        podDefaults:
          nodeSelector: {storage: "yes"}
          tolerations: [{key: storage, operator: Exists}]
          priorityClassName: system-cluster-critical
          podLabels: {team: objects, app.kubernetes.io/part-of: media}
          podAnnotations: {example.org/backup: "no"}
          affinity:
            nodeAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                nodeSelectorTerms:
                - matchExpressions: [{key: disk, operator: In, values: [nvme]}]
                - matchFields: [{key: metadata.name, operator: NotIn, values: [old]}]
          topologySpreadConstraints:
          - {topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
        serviceDefaults: {annotations: {example.org/dns: internal}, labels: {team: objects}}
        placement: required
        pools:
        - name: fast
          replicas: 4
          zones: [a, b]
          storage: {size: 1Ti}
          resources: {requests: {cpu: 2, memory: 4Gi}, limits: {memory: 8Gi}}
          nodeSelector: {disk: nvme}
          podLabels: {team: nvme}
          affinity:
            podAntiAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
              - topologyKey: kubernetes.io/hostname
                labelSelector: {matchLabels: {app: database}}
              preferredDuringSchedulingIgnoredDuringExecution:
              - weight: 10
                podAffinityTerm: {topologyKey: rack, labelSelector: {matchLabels: {app: noisy}}}
        - {name: slow, replicas: 3, storage: {size: 1Ti}, resources: {}, serviceAccountName: theirs}
        container:
          topologySpreadConstraints: [{topologyKey: rack, maxSkew: 2}]
          affinity:
            nodeAffinity:
              preferredDuringSchedulingIgnoredDuringExecution:
              - {weight: 5, preference: {matchExpressions: [{key: disk, operator: Exists}]}}
        proxy:
          replicas: 3
          tolerations: [{key: edge, effect: NoSchedule}]
          service: {annotations: {example.org/dns: public}, labels: {tier: edge}}
          ingress:
            className: nginx
            hosts: [objects.example.org, swift.example.org]
            annotations: {nginx.ingress.kubernetes.io/proxy-body-size: "0"}
          route:
            parentRefs: [{name: edge, namespace: gateways, sectionName: https}]
            hostnames: [o.example.org]
            requestTimeout: 0s
        replicator: {resources: {requests: {cpu: 50m}}}
        redis: {podAnnotations: {example.org/backup: never}}
        tls:
          certManager:
            issuerRef: {name: our-authority, kind: ClusterIssuer}
            dnsNames: ["*.objects.example.org"]
            duration: 2160h
            renewBefore: 90m
        """,
    "federated": """
        pools:
        - {name: disks, replicas: 3, roles: [proxy, object], region: west, storage: {size: 10Gi}}
        proxy: {replicas: 0}
        encryption: transport
        federation:
          name: photos
          member: west
          leader: east
          hostTemplate: "{pod}.{service}.west.example.org"
          podServices: {annotations: {external-dns.alpha.kubernetes.io/hostname: "{host}"}}
          peers: [{ipBlock: {cidr: 10.1.0.0/16}}]
          members:
          - {name: east, namespace: objects, cluster: photos-east, kubeconfigSecretRef: {name: east}}
        """,
}


def manifest(spec: str | dict[str, Any], **meta: Any) -> dict[str, Any]:
    """A StorageCluster as the API server gives it."""
    content = yaml.safe_load(SPECS[spec]) if isinstance(spec, str) else spec
    return {
        "apiVersion": "swiftlet.io/v1alpha1",
        "kind": "StorageCluster",
        "metadata": {**META, **meta},
        "spec": content,
    }


def cluster(spec: str | dict[str, Any]) -> Resource[StorageClusterSpec]:
    """Its view."""
    return parse_storage_cluster(manifest(spec))


def site(spec: str) -> Site:
    """A site with one policy and small rings."""
    resource = cluster(spec)
    return Site(
        cluster=resource,
        image=resource.spec.image or "swiftlet:test",
        redis_image="redis:test",
        policies=(Policy(0, "Policy-0", default=True),),
        ring_chunks={"account": 1, "container": 1, "object-0": 2},
        rdma_pools=frozenset({"near", "far"} if spec == "rdma" else ()),
        rdma_proxies=spec == "rdma",
        # Twenty alerts in each record would hide what the records are about.
        has_monitoring="monitoring:" in SPECS[spec],
        has_gateway_api="route:" in SPECS[spec],
        has_cert_manager="certManager:" in SPECS[spec],
        operator_namespace="swiftlet-system",
    )
