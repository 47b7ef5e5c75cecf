"""The cluster's keys of a process: read from their file, checked every few seconds; the last good ones stay in force.

Everything made from them follows: signatures between services, and the keys derived for tokens. A key is changed only
through the file, in three steps: the new key second, then first, then alone, each after all services have the step
before.

Fault model: as in `swiftlet.main.reloading`. A file that is written in place may be read half-written; a truncated key
is refused by its length or signs until the next check, so write keys to another file and rename it, as Kubernetes does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client import Counter

from swiftlet.auth.tokens import Condition, Tokens, derive_key
from swiftlet.errors import SettingsError
from swiftlet.main.reloading import Look, keep_current, look_at
from swiftlet.settings import ClusterSection
from swiftlet.settings.secret import key_id
from swiftlet.transport.signing import ClusterKey
from swiftlet.web.statusz import STATUS

TOKENS = "tokens"
"""The purpose of the keys that sign users' tokens; all services must use the same word."""
FAILURES = Counter("swiftlet_keys_load_failures_total", "Changed key files that could not be used.")

Follower = Callable[[Sequence[bytes]], None]
"""A function that is called with all keys, the signing one first."""


class ClusterKeys:
    """The keys in use, and the functions to call with new ones."""

    def __init__(self, cluster: ClusterSection) -> None:
        """Read the keys. Raises SettingsError when they can't be used."""
        self._cluster = cluster
        self._seen: Look | None = None
        self._keys: tuple[bytes, ...] = ()
        self._followers: list[Follower] = []
        self.reload()
        self.signing = ClusterKey(*self._keys)
        """Signs requests between services; it always has the keys in use."""
        self.follow(self.signing.use)

    def follow(self, follower: Follower) -> None:
        """Call `follower` with the keys now and whenever they change."""
        follower(self._keys)
        self._followers.append(follower)

    @property
    def current(self) -> Sequence[bytes]:
        """The keys in use, the signing one first."""
        return self._keys

    def ids(self) -> list[str]:
        """Return the ids by which keys are shown, the signing one's first; for the status report."""
        return [key_id(key) for key in self._keys]

    def reload(self) -> bool:
        """Read the keys if their file changed; return whether it had. SettingsError leaves the last good
        ones in force.
        """
        path = self._cluster.key_file
        try:
            look = () if path is None else look_at([path])
        except OSError as error:
            raise SettingsError(f"cluster.key_file: can't read {path}: {error.strerror}") from error
        if look == self._seen:
            return False
        keys = self._cluster.read_keys()
        self._seen = look
        if keys == self._keys:
            return False
        self._keys = keys
        return True

    def tell(self) -> None:
        """Call all followers with the keys."""
        for follower in self._followers:
            follower(self._keys)


KEYS = web.AppKey("keys", ClusterKeys)


def use_keys(app: web.Application, cluster: ClusterSection) -> ClusterKeys:
    """Return the keys of `app`, the same for all its parts, kept up to date while it runs.

    The first call raises SettingsError when the keys can't be used.
    """
    if KEYS not in app:
        keys = app[KEYS] = ClusterKeys(cluster)
        app[STATUS].add("keys", keys.ids)
        keep_current(app, "cluster keys", keys.reload, FAILURES, cluster.key_check_interval_s, keys.tell)
    return app[KEYS]


def use_tokens(
    app: web.Application, cluster: ClusterSection, life_s: int, conditions: Sequence[Condition] = ()
) -> Tokens:
    """Return tokens signed with keys that are derived from the cluster's and follow them; valid ones meet
    `conditions`.
    """

    def derived(keys: Sequence[bytes]) -> list[bytes]:
        return [derive_key(key, TOKENS) for key in keys]

    keys = use_keys(app, cluster)
    tokens = Tokens(derived(keys.current), life_s, conditions=conditions)
    keys.follow(lambda changed: tokens.use(derived(changed)))
    return tokens
