"""How a client behaves: connections, sizes of pieces, repetition, time limits. Values that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, fields
from urllib.parse import urlsplit

from swiftlet.client.errors import ConfigurationError

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What can be chosen about a client; all have defaults that suit most programs."""

    connections: int = 32
    """Connections to the store at a time, of one event loop."""
    concurrency: int = 8
    """Pieces of a large object, or requests of a batch, that are under way at a time."""
    segments_above_bytes: int = 256 * _MIB
    """A larger body is stored in segments, in parallel: it is a static large object then."""
    segment_bytes: int = 64 * _MIB
    """Size of a segment; it is larger where the store's limit of segments would be exceeded."""
    stream_segment_bytes: int = 16 * _MIB
    """Size of the first segments of a body whose size is not known; each of them is held in memory."""
    stream_memory_bytes: int = 256 * _MIB
    """Memory for such segments; fewer of them are under way when they get larger."""
    ranges_above_bytes: int = 64 * _MIB
    """A larger object is downloaded in ranges, in parallel."""
    range_bytes: int = 32 * _MIB
    """Size of such a range."""
    connect_timeout_s: float = 10.0
    """Seconds to reach the store."""
    read_timeout_s: float = 60.0
    """Seconds without a byte after which an answer is given up."""
    long_timeout_s: float = 900.0
    """The same for requests that the store works on before it answers: copies, manifests, deletions with segments."""
    retries: int = 4
    """How often a request is repeated after a failure that may pass."""
    retry_wait_s: float = 0.1
    """Seconds before the first repetition; each further one waits twice as long, all with jitter."""
    retry_wait_most_s: float = 10.0
    """Seconds that no wait exceeds, whatever the store asks for."""
    hedge: bool = True
    """Whether a read that takes longer than 95 of 100 others is asked a second time."""
    verify: bool = True
    """Whether bytes are compared with their ETags, in both directions."""
    metadata_url: str | None = None
    """URL of the store's metadata servers, `http://HOST:PORT`: objects are moved to and from the devices directly where
    that can be done. None: over HTTP, through proxies.
    """
    write_directly: bool = True
    """Whether, with `metadata_url`, objects are stored and deleted directly, too: then they are in listings, or gone
    from them, a second or two later. False: they are only read directly.
    """
    region: str | None = None
    """Region in which the program runs, as the store names its regions. What goes to the devices directly is read from
    near ones, and written there where the storage policy's write quorum is `local`. None: from any, and to most.
    """
    zone: str | None = None
    """Zone of that region, whose devices are the nearest."""
    socket_directory: str | None = None
    """Directory in which object servers of this machine have their sockets, `cluster.native_socket_directory` of the
    store: what goes to them directly goes through shared memory. None, or where a server has none: over TCP.
    """
    ca_file: str | None = None
    """File with the certificate authorities to believe, in PEM; None: those of the system."""
    insecure: bool = False
    """Whether certificates are not checked: for trials only."""

    def __post_init__(self) -> None:
        """Refuse values with which nothing could work."""
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name.startswith(("retr", "segments_above", "ranges_above")) else 1e-3
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value < least:
                raise ConfigurationError(f"option {field.name} is {value}; it has to be larger")
        if self.zone is not None and self.region is None:
            raise ConfigurationError("option zone needs region: equal names of zones in two regions are two zones")
        if self.metadata_url is not None and not _is_base(self.metadata_url):
            raise ConfigurationError(
                f"option metadata_url is {self.metadata_url!r}; it has to be a URL without a path: http://HOST:PORT"
            )


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0
    return whole and parts.path in {"", "/"} and not (parts.query or parts.fragment or parts.username)
