"""Which sections each service reads."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from swiftlet.settings.access import CorsSection, FormPostSection, RateLimitsSection, TempUrlSection
from swiftlet.settings.base import Section
from swiftlet.settings.bulk import BulkSection, StaticWebSection
from swiftlet.settings.container_sync import ContainerSyncSection, RealmsSection
from swiftlet.settings.expirer import ExpirerSection
from swiftlet.settings.linking import SymlinkSection, VersioningSection
from swiftlet.settings.policies import Policies, check_policies, read_policies
from swiftlet.settings.reaper import ReaperSection
from swiftlet.settings.replication import RedisSection
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
    QuotaSection,
    ReplicatorSection,
)

DEFAULT_POLICIES = (PolicySection(index=0, name="Policy-0", default=True),)


class ServiceSettings(Section):
    """The settings that all services read."""

    service: ClassVar[str]
    """The service's name on the command line, in logs and metrics."""

    cluster: ClusterSection = Field(description="Settings that must be the same for all services of a cluster.")
    policies: tuple[PolicySection, ...] = Field(
        default=DEFAULT_POLICIES,
        min_length=1,
        description="Storage policies of the cluster. Exactly one has default: true. Policies may be added, but "
        "never renumbered.",
    )
    log: LogSection = Field(default=LogSection(), description="Logging.")
    drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=25.0,
        description="Seconds for which requests in progress may continue after SIGTERM. Less than Kubernetes' "
        "default terminationGracePeriodSeconds of 30.",
    )

    @field_validator("policies")
    @classmethod
    def _policies_agree(cls, policies: tuple[PolicySection, ...]) -> tuple[PolicySection, ...]:
        check_policies(policies)
        return policies

    @model_validator(mode="after")
    def _one_source_of_policies(self) -> Self:
        if self.cluster.policies_file is not None and "policies" in self.model_fields_set:
            raise ValueError("set either policies or cluster.policies_file, not both")
        return self

    def load_policies(self) -> Policies:
        """Return the policies to begin with. Raises SettingsError when the policies file can't be used."""
        file = self.cluster.policies_file
        return Policies(read_policies(file) if file is not None else self.policies)


class ProxySettings(ServiceSettings):
    """Settings of the proxies, which serve the Swift API."""

    service: ClassVar[str] = "proxy"
    limits: LimitsSection = Field(default=LimitsSection(), description="Limits of the API.")
    auth: AuthSection = Field(default=AuthSection(), description="Authentication.")
    quota: QuotaSection = Field(default=QuotaSection(), description="Quotas of accounts and containers.")
    tempurl: TempUrlSection = Field(default=TempUrlSection(), description="Temporary URLs.")
    formpost: FormPostSection = Field(default=FormPostSection(), description="Uploads from signed HTML forms.")
    cors: CorsSection = Field(default=CorsSection(), description="Cross-origin requests (CORS).")
    rate_limits: RateLimitsSection = Field(
        default=RateLimitsSection(), description="Rate limits of accounts and containers; off by default."
    )
    symlink: SymlinkSection = Field(default=SymlinkSection(), description="Symbolic links.")
    versioning: VersioningSection = Field(default=VersioningSection(), description="Object versioning.")
    bulk: BulkSection = Field(default=BulkSection(), description="Bulk operations.")
    static_web: StaticWebSection = Field(
        default=StaticWebSection(), description="Static web: containers served as web sites."
    )
    realms: RealmsSection = Field(
        default=RealmsSection(), description="Realms of container sync, of which the proxy accepts signatures."
    )
    proxy: ProxySection = Field(default=ProxySection(), description="The Swift API server.")


class ObjectSettings(ServiceSettings):
    """Settings of the object servers."""

    service: ClassVar[str] = "object"
    object: ObjectSection = Field(description="The object server.")


class ContainerSettings(ServiceSettings):
    """Settings of the account and container servers."""

    service: ClassVar[str] = "container"
    container: ContainerSection = Field(description="The account and container server.")


class MetadataSettings(ServiceSettings):
    """Settings of the metadata servers."""

    service: ClassVar[str] = "metadata"
    limits: LimitsSection = Field(default=LimitsSection(), description="Limits of the API.")
    versioning: VersioningSection = Field(default=VersioningSection(), description="Object versioning.")
    rate_limits: RateLimitsSection = Field(
        default=RateLimitsSection(), description="Rate limits of accounts and containers; off by default."
    )
    auth: AuthSection = Field(default=AuthSection(), description="Authentication.")
    quota: QuotaSection = Field(default=QuotaSection(), description="Quotas of accounts and containers.")
    metadata: MetadataSection = Field(default=MetadataSection(), description="The metadata server.")


class ReplicatorSettings(ServiceSettings):
    """Settings of the replicators."""

    service: ClassVar[str] = "replicator"
    replicator: ReplicatorSection = Field(description="The replicator.")
    redis: RedisSection = Field(
        default=RedisSection(), description="The failure table, by which replicators inform each other of failed nodes."
    )
    expirer: ExpirerSection = Field(default=ExpirerSection(), description="The object expirer.")
    reaper: ReaperSection = Field(default=ReaperSection(), description="The account reaper.")
    realms: RealmsSection = Field(
        default=RealmsSection(), description="Realms of container sync, to whose clusters containers are copied."
    )
    container_sync: ContainerSyncSection = Field(
        default=ContainerSyncSection(), description="Copies of containers in other clusters."
    )


SERVICES: dict[str, type[ServiceSettings]] = {
    model.service: model
    for model in (ProxySettings, ObjectSettings, ContainerSettings, MetadataSettings, ReplicatorSettings)
}
"""Every service by its name on the command line."""
