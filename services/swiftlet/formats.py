"""Messages about data whose format has a version that this program does not understand.

Each format has one version number. Data of another version are refused and left as they are;
`docs/upgrades-of-formats.md` lists the formats and says how the first of them will get a second version.
"""

from __future__ import annotations

OTHER_RELEASE = "run a release of Swiftlet that understands it"
"""The fix for data on a disk or in an object of Kubernetes."""
SAME_RELEASE = "run the same release of Swiftlet on both sides"
"""The fix for data from a peer."""


def other_version(what: str, found: object, understood: int, fix: str = OTHER_RELEASE) -> str:
    """Return the message of a refusal: `what` names the format and the place of the data, `found` the
    version in them.
    """
    return f"{what} has format version {found}, this program understands {understood}: {fix}"
