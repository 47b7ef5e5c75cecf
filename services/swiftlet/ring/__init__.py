"""Rings: which devices hold which partition, and how that is planned, changed, measured and stored.

Devices and their topology, the builder that assigns partitions to devices with as little movement as possible, the
read-only ring that everybody else uses, the reports on both, and the files they are kept in belong here. Names and how
they are hashed (a ring is asked with a digest), clocks (the hour is passed in), sockets and Kubernetes don't. This
package imports only `formats` of the others, so that the operator can use it alone.

The model is OpenStack Swift's (https://docs.openstack.org/swift/latest/overview_ring.html): a partition is the top
`part_power` bits of a 16-byte digest; every partition has some replicas, each on another device.

Modules, lowest first: `model` (devices, limits, errors), `topology` (the tree of failure domains), `plan` (how many
replicas each tier should hold), `patterns` (where one more replica may go), `deal` (the first layout), `rebalance`
(changes with little movement), `balance` (reports), `lookup` (the ring), `builder`, `codec`.
"""

from swiftlet.ring.balance import RingReport, report
from swiftlet.ring.builder import RebalanceResult, RingBuilder
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device, RingError, RingFormatError

__all__ = ["Device", "RebalanceResult", "Ring", "RingBuilder", "RingError", "RingFormatError", "RingReport", "report"]
