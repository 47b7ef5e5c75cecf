"""What can go wrong with the API server, free of any client's classes. `swiftlet_operator.kube` raises these."""

from __future__ import annotations

from swiftlet.errors import SwiftletError


class KubeError(SwiftletError):
    """The API server did not do what it was asked; `str(error)` says what and why."""


class KubeUnavailable(KubeError):
    """No answer, or one that says to come back later; the same request may succeed soon."""


class KubeForbidden(KubeError):
    """The operator's role does not allow it: a missing rule in its ClusterRole or Role."""


class KubeInvalid(KubeError):
    """The API server refuses the object as it is; only another object will be taken."""


class KubeConflict(KubeError):
    """Someone else changed the object meanwhile, or it exists already."""


class NotLeader(SwiftletError):
    """Another operator leads now: nothing may be written any more."""


class BrokenState(SwiftletError):
    """Something that the operator keeps in the cluster can't be read back; a person has to look."""


class SealError(SwiftletError):
    """Something sealed that can't be opened or was not sealed by us, or a key that is none."""
