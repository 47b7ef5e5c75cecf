"""What is said of data in a version of their format that this program does not understand.

Each format has one version number. Another one is refused and left as it is; `docs/upgrades-of-formats.md` lists the
formats and says how the first of them will get a second version.
"""

from __future__ import annotations

OTHER_RELEASE = "run a release of Swiftlet that understands it"
"""The fix for what lies on a disk or in an object of Kubernetes."""
SAME_RELEASE = "run the same release of Swiftlet on both sides"
"""The fix for what comes from a peer."""


def other_version(what: str, found: object, understood: int, fix: str = OTHER_RELEASE) -> str:
    """The message of a refusal: `what` names the format and the place of the data, `found` the version in them."""
    return f"{what} has format version {found}, this program understands {understood}: {fix}"
