"""The totals of an account by storage policy: a table that triggers update, in the transactions that change its rows.

Counting the rows would read all of them for each HEAD of the account. Table and triggers are a part of the schema of an
account's database.

Rows are stored by INSERT OR REPLACE, which runs no DELETE trigger for the row that is replaced, so a trigger subtracts
that row before. Statements in a trigger inherit OR REPLACE from the statement that fired it, so none of them may cause
a conflict.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from swiftlet.model import Amounts

MAX_POLICIES = 256
"""The largest number of policies that `read` returns."""
SCHEMA = """
CREATE TABLE policy_total (
    policy INTEGER NOT NULL PRIMARY KEY,
    containers INTEGER NOT NULL,
    objects INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;
CREATE TRIGGER policy_replaced BEFORE INSERT ON live
BEGIN
    UPDATE policy_total SET containers = containers - 1, objects = objects - before.object_count,
        bytes = bytes - before.bytes_used
    FROM (SELECT policy, object_count, bytes_used FROM live WHERE name = NEW.name) AS before
    WHERE policy_total.policy = before.policy;
END;
CREATE TRIGGER policy_inserted AFTER INSERT ON live
BEGIN
    INSERT INTO policy_total SELECT NEW.policy, 0, 0, 0
        WHERE NOT EXISTS (SELECT 1 FROM policy_total WHERE policy = NEW.policy);
    UPDATE policy_total SET containers = containers + 1, objects = objects + NEW.object_count,
        bytes = bytes + NEW.bytes_used
    WHERE policy = NEW.policy;
END;
CREATE TRIGGER policy_deleted AFTER DELETE ON live
BEGIN
    UPDATE policy_total SET containers = containers - 1, objects = objects - OLD.object_count,
        bytes = bytes - OLD.bytes_used
    WHERE policy = OLD.policy;
END;
"""
"""The schema of the table and its triggers, which has to follow that of the row tables."""
_COUNT = "SELECT policy, COUNT(*), SUM(object_count), SUM(bytes_used) FROM live GROUP BY policy ORDER BY policy"


def read(connection: sqlite3.Connection) -> dict[int, Amounts]:
    """Return the containers, objects and bytes by policy, for policies that have containers."""
    found = connection.execute(
        "SELECT policy, containers, objects, bytes FROM policy_total WHERE containers > 0 ORDER BY policy LIMIT ?",
        (MAX_POLICIES,),
    )
    return {policy: Amounts(*counts) for policy, *counts in found}


def count(connection: sqlite3.Connection) -> dict[int, Amounts]:
    """Return the same as `read`, counted from the rows; this reads them all."""
    return {policy: Amounts(*counts) for policy, *counts in connection.execute(_COUNT)}


def agree(connection: sqlite3.Connection) -> bool:
    """Return whether the table exists and matches the rows; this reads them all."""
    if not _is_there(connection):
        return False
    found = connection.execute("SELECT policy, containers, objects, bytes FROM policy_total")
    told: Mapping[int, Amounts] = {policy: Amounts(*counts) for policy, *counts in found}
    return {policy: amounts for policy, amounts in told.items() if amounts != Amounts()} == count(connection)


def _is_there(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'policy_total'")
    return found.fetchone() is not None
