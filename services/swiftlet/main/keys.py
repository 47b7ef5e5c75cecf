"""The cluster's keys of a process: read from their file, looked at every few seconds, the last good ones kept.

Everything made from them follows: signatures between services, and the keys derived for tokens. A change goes
through the file alone: first the new key second, then first, then alone, each after all services have the step
before.

Fault model: as in `swiftlet.main.reloading`. A file that is written in place may be seen half; a key cut short there is
refused by length or signs until the next look, so write keys aside and rename, as Kubernetes does.
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
"""Is given all keys, the signing one first."""


class ClusterKeys:
    """The keys in use, and who must hear of new ones."""

    def __init__(self, cluster: ClusterSection) -> None:
        """Read the keys; SettingsError when they can't be used."""
        self._cluster = cluster
        self._seen: Look | None = None
        self._keys: tuple[bytes, ...] = ()
        self._followers: list[Follower] = []
        self.reload()
        self.signing = ClusterKey(*self._keys)
        """For requests between services; always has the keys in use."""
        self.follow(self.signing.use)

    def follow(self, follower: Follower) -> None:
        """Give the keys to `follower` now and whenever they change."""
        follower(self._keys)
        self._followers.append(follower)

    @property
    def current(self) -> Sequence[bytes]:
        """The keys in use, the signing one first."""
        return self._keys

    def ids(self) -> list[str]:
        """What the keys are known by, the signing one first; for the status report."""
        return [key_id(key) for key in self._keys]

    def reload(self) -> bool:
        """Read the keys if their file changed; whether they did. SettingsError leaves the last good ones in force."""
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
        """Give the keys to all followers."""
        for follower in self._followers:
            follower(self._keys)


KEYS = web.AppKey("keys", ClusterKeys)


def use_keys(app: web.Application, cluster: ClusterSection) -> ClusterKeys:
    """The keys of `app`, the same for all its parts, kept up to date while it runs; SettingsError at the first call."""
    if KEYS not in app:
        keys = app[KEYS] = ClusterKeys(cluster)
        app[STATUS].add("keys", keys.ids)
        keep_current(app, "cluster keys", keys.reload, FAILURES, cluster.key_check_interval_s, keys.tell)
    return app[KEYS]


def use_tokens(
    app: web.Application, cluster: ClusterSection, life_s: int, conditions: Sequence[Condition] = ()
) -> Tokens:
    """Tokens signed with keys that are derived from the cluster's, and follow them; valid ones meet `conditions`."""

    def derived(keys: Sequence[bytes]) -> list[bytes]:
        return [derive_key(key, TOKENS) for key in keys]

    keys = use_keys(app, cluster)
    tokens = Tokens(derived(keys.current), life_s, conditions=conditions)
    keys.follow(lambda changed: tokens.use(derived(changed)))
    return tokens
