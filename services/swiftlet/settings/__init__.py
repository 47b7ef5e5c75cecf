"""Typed settings of every service, from one YAML file and the environment.

This package has names, types, defaults, units and reasons of everything that an operator can set; it makes one frozen
object from a file and `SWIFTLET_<SECTION>__<FIELD>` variables, and renders the reference of settings. Reading a setting
doesn't belong here: composition roots (`swiftlet.main`) load an object once and hand each part its section.

One file may serve all services of a cluster: a service reads its own sections and ignores those of the others, but a
name that no service knows is an error.
"""

from swiftlet.settings.load import load_settings
from swiftlet.settings.reference import render_reference
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
from swiftlet.settings.services import (
    SERVICES,
    ContainerSettings,
    MetadataSettings,
    ObjectSettings,
    ProxySettings,
    ReplicatorSettings,
    ServiceSettings,
)

__all__ = [
    "SERVICES",
    "AuthSection",
    "ClusterSection",
    "ContainerSection",
    "ContainerSettings",
    "LimitsSection",
    "LogSection",
    "MetadataSection",
    "MetadataSettings",
    "ObjectSection",
    "ObjectSettings",
    "PolicySection",
    "ProxySection",
    "ProxySettings",
    "QuotaSection",
    "ReplicatorSection",
    "ReplicatorSettings",
    "ServiceSettings",
    "load_settings",
    "render_reference",
]
