"""The number of files that a service may have open."""

from __future__ import annotations

import resource

MOST_FILES = 1 << 20
"""Files that a service asks to have open at most, where the system allows more."""


def allow_many_files() -> None:
    """Raise this process's soft limit of open files to the hard one. Some container runtimes begin with 1,024, and each
    database takes three files or more, each client and each device one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
