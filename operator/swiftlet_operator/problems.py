"""Errors of requests to the API server, independent of any client's classes. `swiftlet_operator.kube` raises these."""

from __future__ import annotations

from swiftlet.errors import SwiftletError


class KubeError(SwiftletError):
    """The API server did not do what it was asked; `str(error)` says what and why."""


class KubeUnavailable(KubeError):
    """The API server gave no answer, or one that says to come back later; the same request may succeed soon."""


class KubeForbidden(KubeError):
    """The operator's role does not allow the request: a rule is missing in its ClusterRole or Role."""


class KubeInvalid(KubeError):
    """The API server refuses the object as it is; only a changed object will be accepted."""


class KubeConflict(KubeError):
    """Someone else changed the object meanwhile, or it exists already."""


class NotLeader(SwiftletError):
    """Another operator leads now: nothing may be written any more."""


class BrokenState(SwiftletError):
    """Something that the operator keeps in the cluster can't be read back; a person has to look at it."""


class SealError(SwiftletError):
    """Sealed data can't be opened or was not sealed by us, or a key is not valid."""
