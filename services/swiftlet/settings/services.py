"""Which sections each service reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from swiftlet.settings.base import Section
from swiftlet.settings.sections import (
    AuthSection,
    ClusterSection,
    ContainerSection,
    LimitsSection,
    LogSection,
    MetadataSection,
    ObjectSection,
    PolicySection,
    ProxySection,
    ReplicatorSection,
)

DEFAULT_POLICIES = (PolicySection(index=0, name="Policy-0", default=True),)


class ServiceSettings(Section):
    """What all services read."""

    service: ClassVar[str]
    """The service's name on the command line, in logs and metrics."""

    cluster: ClusterSection = Field(description="What every service of one cluster must agree on.")
    policies: tuple[PolicySection, ...] = Field(
        default=DEFAULT_POLICIES,
        min_length=1,
        description="Storage policies of the cluster. Exactly one has default: true; add, never renumber.",
    )
    log: LogSection = Field(default=LogSection(), description="What is logged, and how.")
    drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=25.0,
        description="Seconds that requests in flight may take to finish after SIGTERM. Below Kubernetes' default "
        "terminationGracePeriodSeconds of 30.",
    )

    @field_validator("policies")
    @classmethod
    def _policies_agree(cls, policies: tuple[PolicySection, ...]) -> tuple[PolicySection, ...]:
        _check_policies(policies)
        return policies

    @property
    def default_policy(self) -> PolicySection:
        """The policy of containers created without X-Storage-Policy."""
        return next(policy for policy in self.policies if policy.default)

    def policy_named(self, name: str) -> PolicySection | None:
        """The policy of that name, without regard to case."""
        return next((policy for policy in self.policies if policy.name.lower() == name.lower()), None)

    def policy_at(self, index: int) -> PolicySection | None:
        """The policy of that index."""
        return next((policy for policy in self.policies if policy.index == index), None)


def _doubles(values: Sequence[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})


def _check_policies(policies: Sequence[PolicySection]) -> None:
    if doubles := _doubles([policy.name.lower() for policy in policies]):
        raise ValueError(f"name {', '.join(doubles)} is given to more than one policy")
    if doubles := _doubles([str(policy.index) for policy in policies]):
        raise ValueError(f"index {', '.join(doubles)} is given to more than one policy")
    defaults = [policy.name for policy in policies if policy.default]
    if len(defaults) != 1:
        raise ValueError(f"exactly one policy must have default: true; now it is {', '.join(defaults) or 'none'}")


class ProxySettings(ServiceSettings):
    """The Swift API server."""

    service: ClassVar[str] = "proxy"
    limits: LimitsSection = Field(default=LimitsSection(), description="Limits of the API.")
    auth: AuthSection = Field(default=AuthSection(), description="Who may use the API.")
    proxy: ProxySection = Field(default=ProxySection(), description="The Swift API server.")


class ObjectSettings(ServiceSettings):
    """The object server."""

    service: ClassVar[str] = "object"
    object: ObjectSection = Field(description="The object server.")


class ContainerSettings(ServiceSettings):
    """The account and container server."""

    service: ClassVar[str] = "container"
    container: ContainerSection = Field(description="The account and container server.")


class MetadataSettings(ServiceSettings):
    """The metadata server."""

    service: ClassVar[str] = "metadata"
    auth: AuthSection = Field(default=AuthSection(), description="Who may use the API.")
    metadata: MetadataSection = Field(default=MetadataSection(), description="The metadata server.")


class ReplicatorSettings(ServiceSettings):
    """The replicator."""

    service: ClassVar[str] = "replicator"
    replicator: ReplicatorSection = Field(description="The replicator.")


SERVICES: dict[str, type[ServiceSettings]] = {
    model.service: model
    for model in (ProxySettings, ObjectSettings, ContainerSettings, MetadataSettings, ReplicatorSettings)
}
"""Every service by its name on the command line."""
