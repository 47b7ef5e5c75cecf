"""The metrics of the listing audit."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from swiftlet.sync.audit.verdict import Wrong

LOOKED_AT = Counter(
    "swiftlet_listing_audit_rows_total",
    "Names whose row was compared with the object, by the side from which the audit came.",
    ["walk"],
)
WRONG = Counter(
    "swiftlet_listing_audit_wrong_total",
    "Rows that did not say what the object says, though they were not new; should stay 0.",
    ["kind"],
)
for _wrong in Wrong:
    # All labels exist from the start: a query for increases misses the first event of a counter that begins with it.
    WRONG.labels(_wrong.value)
MENDED = Counter("swiftlet_listing_audit_mended_total", "Of the wrong rows, those that were put right.", ["kind"])
UNDECIDED = Counter(
    "swiftlet_listing_audit_undecided_total",
    "Rows that say more than the devices that answered; they are looked at again.",
)
ORPHANS = Counter(
    "swiftlet_listing_audit_orphans_total", "Objects whose container does not exist; they are not listed again."
)
PASS_S = Gauge(
    "swiftlet_listing_audit_pass_timestamp_seconds",
    "When the last full pass of the audit ended.",
    ["walk"],
    multiprocess_mode="livemin",
)
