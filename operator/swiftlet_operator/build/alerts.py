"""The alerts of a cluster, as data. Each has a section in docs/runbooks.md, under its own name.

An expression selects series by labels that the ServiceMonitor adds (`CLUSTER`), or that the operator adds to its own
(`TOLD`). They are compared for equality: the cluster `lab` gets nothing of the series of `lab-2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLUSTER = "$CLUSTER"
"""Stands in an expression for the labels of series that this cluster's own pods export."""
TOLD = "$TOLD"
"""Stands in an expression for the labels of series about this cluster that the operator exports."""


_STARTS_NOT = f'unless on (swiftlet_cluster) swiftlet_operator_condition{{{TOLD},type="PodsHealthy"}} == -1'
"""The condition is Unknown only during the first start. Both sides are of one cluster, whatever its
namespace labels.
"""


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule; `lasting` is how long the expression has to be true before the alert fires."""

    name: str
    expression: str
    lasting: str
    severity: Literal["critical", "warning"]
    summary: str
    description: str
    only_with: Literal["", "redis", "encryption", "federation"] = ""
    """What a cluster must have for the rule to apply: a Redis, `spec.encryption: transport`, or `spec.federation`; ""
    for every cluster.
    """
    after_start: bool = False
    """Whether the rule is silent while the cluster starts for the first time and nothing is wrong with its pods."""


_WHERE = "{{ $labels.pod }}"
_DEVICE = "{{ $labels.device }} of {{ $labels.pod }}"

ALERTS = (
    # What clients notice.
    Alert(
        "SwiftletNotReady",
        'swiftlet_operator_condition{$TOLD,type="Ready"} == 0',
        "10m",
        "critical",
        "The cluster is not ready.",
        "The condition Ready of the StorageCluster has been False for 10 minutes; its message says what is missing.",
        after_start=True,
    ),
    Alert(
        "SwiftletPodsUnhealthy",
        'swiftlet_operator_condition{$TOLD,type="PodsHealthy"} == 0',
        "10m",
        "warning",
        "Pods do not run, and time alone does not help.",
        "The condition PodsHealthy of the StorageCluster has been False for 10 minutes; its reason is the cause, and "
        "its message names pods, what Kubernetes says of them, and the field to change.",
    ),
    Alert(
        "SwiftletServerErrors",
        'sum by (namespace, swiftlet_cluster) (rate(swiftlet_http_requests_total{$CLUSTER,service="proxy",'
        'status=~"5.."}[5m])) / sum by (namespace, swiftlet_cluster) '
        '(rate(swiftlet_http_requests_total{$CLUSTER,service="proxy"}[5m])) > 0.01',
        "5m",
        "critical",
        "Proxies answer more than one request in a hundred with 5xx.",
        "{{ $value | humanizePercentage }} of the requests to the proxies failed with a server error.",
        after_start=True,
    ),
    Alert(
        "SwiftletSlowEventLoop",
        "histogram_quantile(0.99, sum by (namespace, swiftlet_cluster, pod, service, le) "
        "(rate(swiftlet_event_loop_lag_seconds_bucket{$CLUSTER}[5m]))) > 0.5",
        "15m",
        "warning",
        f"The service {{{{ $labels.service }}}} in {_WHERE} makes its requests wait.",
        "One wake-up of its event loop in a hundred comes {{ $value | humanizeDuration }} late or more, and every "
        "request of the process waits as long.",
    ),
    Alert(
        "SwiftletTargetDown",
        "up{$CLUSTER} == 0",
        "10m",
        "critical",
        f"{_WHERE} does not answer at {{{{ $labels.endpoint }}}}.",
        "Prometheus has not been able to read the service's metrics for 10 minutes, so no other alert is about it.",
        after_start=True,
    ),
    # Whether every copy is there.
    Alert(
        "SwiftletRedundancyLost",
        'swiftlet_operator_condition{$TOLD,type="Degraded"} == 1',
        "15m",
        "warning",
        "Data has fewer copies at hand than it should.",
        "The condition Degraded of the StorageCluster has been True for 15 minutes; its message names pods, nodes or "
        "devices.",
    ),
    Alert(
        "SwiftletReplicasTogether",
        'swiftlet_operator_condition{$TOLD,type="ReplicasSpread"} == 0',
        "30m",
        "warning",
        "The loss of one place would take data away.",
        "The condition ReplicasSpread of the StorageCluster has been False for 30 minutes; its message names the node, "
        "zone or region, and the ring.",
    ),
    Alert(
        "SwiftletNodesCordoned",
        'swiftlet_operator_condition{$TOLD,type="NodesCordoned"} == 1',
        "2h",
        "warning",
        "Nodes with data have been cordoned for hours.",
        "The condition NodesCordoned of the StorageCluster has been True for 2 hours: a drain does not come to its "
        "end, or a cordon was forgotten; its message names nodes and what is waited for.",
    ),
    Alert(
        "SwiftletUpgradeTimedOut",
        "swiftlet_operator_upgrade_timed_out{$TOLD} == 1",
        "5m",
        "warning",
        "A pod has not come back from its restart in time.",
        "The condition Progressing of the StorageCluster has the reason UpgradeTimedOut, and names the pod and the "
        "cause. Nothing else is restarted meanwhile.",
    ),
    Alert(
        "SwiftletDeviceDown",
        "swiftlet_object_device_up{$CLUSTER} == 0 or swiftlet_listing_device_failed{$CLUSTER} == 1",
        "5m",
        "critical",
        f"The device {_DEVICE} failed.",
        "The device answers with I/O errors and was taken out of service; its data has one copy less.",
    ),
    Alert(
        "SwiftletNodeLeftOut",
        'max by (namespace, swiftlet_cluster, pod) (swiftlet_replicator_neighbours_out{$CLUSTER,verdict="failed"}) > 0',
        "15m",
        "warning",
        f"The replicator of {_WHERE} leaves nodes out of its rounds.",
        "{{ $value }} object servers have not answered it for 15 minutes; what they hold is not compared meanwhile.",
        after_start=True,
    ),
    Alert(
        "SwiftletDataQuarantined",
        "increase(swiftlet_object_quarantined_total{$CLUSTER}[1h]) > 0 "
        "or increase(swiftlet_listing_quarantined_total{$CLUSTER}[1h]) > 0",
        "0m",
        "warning",
        f"Damaged data on {_DEVICE} was set aside.",
        "Something that was read did not have its checksum or its form. Other replicas replace it; a device on which "
        "this comes again is failing.",
    ),
    Alert(
        "SwiftletFragmentsShort",
        "sum by (namespace, swiftlet_cluster, policy) (swiftlet_replicator_coded_partitions{$CLUSTER,"
        'redundant=~"0|short"}) > 0',
        "10m",
        "critical",
        "Objects of the policy {{ $labels.policy }} have no fragment to spare.",
        "In {{ $value }} partitions there are objects with erasure coding of which no more fragments are at their "
        "places than a read takes, or fewer: one more lost device takes them away.",
    ),
    Alert(
        "SwiftletRepairStands",
        "(sum by (namespace, swiftlet_cluster, pod) (swiftlet_replicator_coded_left{$CLUSTER}) > 0 "
        "unless sum by (namespace, swiftlet_cluster, pod) "
        '(increase(swiftlet_replicator_coded_repaired_total{$CLUSTER,how=~"rebuilt|told"}[30m])) > 0) '
        "or (time() - (sum by (namespace, swiftlet_cluster, pod) "
        "(swiftlet_replicator_coded_last_round_timestamp_seconds{$CLUSTER}) > 0)) > 3600",
        "15m",
        "warning",
        f"The replicator of {_WHERE} does not repair what it knows to be missing.",
        "Fragments of objects with erasure coding are missing at their places, and none has been made for half an "
        "hour; or no round of repairs has ended for an hour.",
    ),
    # Whether what is written gets everywhere.
    Alert(
        "SwiftletReplicationStands",
        "time() - (swiftlet_replicator_last_round_timestamp_seconds{$CLUSTER} > 0 "
        'or process_start_time_seconds{$CLUSTER,endpoint="replicator"}) > 3600',
        "15m",
        "warning",
        f"The replicator of {_WHERE} has finished no round for an hour.",
        "Replicas are not compared there: since its last round, or its start, {{ $value | humanizeDuration }} have "
        "passed.",
    ),
    Alert(
        "SwiftletReplicationFails",
        'sum by (namespace, swiftlet_cluster, pod) (rate(swiftlet_replicator_compared_total{$CLUSTER,result="failed"}'
        "[15m])) / sum by (namespace, swiftlet_cluster, pod) (rate(swiftlet_replicator_compared_total{$CLUSTER}[15m])) "
        "> 0.1",
        "30m",
        "warning",
        f"Comparisons of the replicator of {_WHERE} fail.",
        "{{ $value | humanizePercentage }} of its comparisons with peers failed.",
    ),
    Alert(
        "SwiftletRegionsBehind",
        "time() - min by (namespace, swiftlet_cluster, ring, region) "
        "(swiftlet_replicator_region_equal_timestamp_seconds{$CLUSTER}) > 600",
        "10m",
        "warning",
        "The region {{ $labels.region }} and others differ in what was written in the last minutes.",
        "In the ring {{ $labels.ring }} what was written in the last {{ $value | humanizeDuration }} may be in one of "
        "the regions only: a loss of that region would take it away.",
    ),
    Alert(
        "SwiftletPendingUpdatesOld",
        "swiftlet_object_pending_oldest_seconds{$CLUSTER} > 300",
        "10m",
        "warning",
        f"{_DEVICE} can't deliver rows to listings.",
        "The oldest row has waited for {{ $value | humanizeDuration }}: objects are stored, and listings do not show "
        "them yet.",
    ),
    Alert(
        "SwiftletListingsWrong",
        "sum by (namespace, swiftlet_cluster) (increase(swiftlet_listing_audit_wrong_total{$CLUSTER}[6h])) > 0",
        "0m",
        "warning",
        "The audit found rows of listings that were wrong.",
        "{{ $value | humanize }} rows did not say what their objects say. The audit puts them right; there should be "
        "none.",
    ),
    Alert(
        "SwiftletSplitStands",
        "max by (namespace, swiftlet_cluster) (swiftlet_shard_oldest_split_seconds{$CLUSTER}) > 3600",
        "15m",
        "warning",
        "A large container's split does not go on.",
        "The split that takes longest has been under way for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "SwiftletExpiryLags",
        "max by (namespace, swiftlet_cluster) (swiftlet_expirer_lag_seconds{$CLUSTER}) > 21600",
        "1h",
        "warning",
        "Objects that expired are not deleted.",
        "The oldest has been due for {{ $value | humanizeDuration }}. Clients do not see it, but it takes room.",
    ),
    # Room.
    Alert(
        "SwiftletDeviceFilling",
        "swiftlet_object_device_free_bytes{$CLUSTER} / swiftlet_object_device_total_bytes{$CLUSTER} < 0.15",
        "30m",
        "warning",
        f"{{{{ $value | humanizePercentage }}}} of {_DEVICE} is free.",
        "Grow the pool before the device is full: data has to move to what is added.",
    ),
    Alert(
        "SwiftletDeviceFull",
        "swiftlet_object_device_free_bytes{$CLUSTER} / swiftlet_object_device_total_bytes{$CLUSTER} < 0.05",
        "5m",
        "critical",
        f"{_DEVICE} is full.",
        "Only {{ $value | humanizePercentage }} is free. Below its reserve the device takes no more writes, and other "
        "devices take them in its place.",
    ),
    # What has been configured.
    Alert(
        "SwiftletRingNotUsable",
        "max by (namespace, swiftlet_cluster, pod, ring) (swiftlet_ring_stale{$CLUSTER}) == 1",
        "15m",
        "warning",
        f"{_WHERE} can't use the newest ring {{{{ $labels.ring }}}}.",
        "It goes on with an earlier one, or has none; its log says why.",
        after_start=True,
    ),
    Alert(
        "SwiftletFileNotUsable",
        " or ".join(
            f"increase(swiftlet_{what}_load_failures_total{{$CLUSTER}}[30m]) > 0"
            for what in ("keys", "users", "quotas", "policies", "tls")
        ),
        "0m",
        "warning",
        f"{_WHERE} refused a changed file of keys, users, quotas, policies or certificates.",
        "The last good one stays in force; the log of the pod names the file and what is wrong with it.",
    ),
    Alert(
        "SwiftletCertificateExpires",
        "min by (namespace, swiftlet_cluster) (swiftlet_tls_certificate_expiry_timestamp_seconds{$CLUSTER} > 0) "
        "- time() < 14 * 86400",
        "1h",
        "warning",
        "The certificate of the API expires.",
        "It is good for {{ $value | humanizeDuration }}; clients refuse the API afterwards.",
    ),
    Alert(
        "SwiftletClusterKeyOld",
        "time() - swiftlet_operator_cluster_key_timestamp_seconds{$TOLD} > 365 * 86400",
        "1h",
        "warning",
        "The cluster key is older than a year.",
        "It is {{ $value | humanizeDuration }} old; raise spec.keys.generation to have another one.",
    ),
    Alert(
        "SwiftletKeysNotSealed",
        'swiftlet_operator_condition{$TOLD,type="KeysSealed"} == 0',
        "1h",
        "warning",
        "Volumes lack the newest sealed copy of the keys.",
        "The condition KeysSealed of the StorageCluster has been False for an hour: were the Secret with the keys lost "
        "now, it might not come back by itself. Its message says what is missing.",
        after_start=True,
    ),
    Alert(
        "SwiftletTransportNotEncrypted",
        'swiftlet_operator_condition{$TOLD,type="TransportEncrypted"} == 0',
        "2h",
        "warning",
        "Services still take connections in plain text.",
        "The StorageCluster asks for spec.encryption: transport, and the condition TransportEncrypted has been False "
        "for 2 hours; its message names the pods that are waited for.",
        only_with="encryption",
    ),
    Alert(
        "SwiftletFederationNotReady",
        'swiftlet_operator_condition{$TOLD,type="FederationReady"} == 0',
        "30m",
        "warning",
        "Another member of the federation is not heard, or does not fit.",
        "The condition FederationReady of the StorageCluster has been False for 30 minutes; its message names the "
        "member and what to do. Until then no ring changes and no pod with data is restarted.",
        only_with="federation",
        after_start=True,
    ),
    Alert(
        "SwiftletRedisAway",
        "swiftlet_replicator_redis_up{$CLUSTER} == 0",
        "15m",
        "warning",
        f"The replicator of {_WHERE} does not reach Redis.",
        "It learns of failed nodes by its own exceptions alone, somewhat later. Nothing else depends on Redis. "
        "The condition FailureTableShared has the reason.",
        only_with="redis",
        after_start=True,
    ),
)


def expression_of(alert: Alert, namespace: str, cluster: str) -> str:
    """Return the alert's expression for one cluster."""
    mine = f'namespace="{namespace}",swiftlet_cluster="{cluster}"'
    told = f'swiftlet_namespace="{namespace}",swiftlet_cluster="{cluster}"'
    expression = f"({alert.expression}) {_STARTS_NOT}" if alert.after_start else alert.expression
    return expression.replace(CLUSTER, mine).replace(TOLD, told)
