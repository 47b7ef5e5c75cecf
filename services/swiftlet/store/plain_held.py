"""The files in an object's directory of the plain store, and the state that they stand for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Self

from swiftlet.errors import StoreFormatError
from swiftlet.model import Entry, PostRecord
from swiftlet.store.merge import State, entry_of
from swiftlet.store.plain_format import FileKind, file_name, parse_name, post_of, read_tail
from swiftlet.timestamp import ZERO, Timestamp


@dataclass(slots=True)
class Held:
    """One look at a directory. POSTs are read when first asked for."""

    directory: str
    present: bool
    """Whether the directory exists."""
    files: dict[str, tuple[Timestamp, FileKind]]
    damaged: str | None = None
    """The file in which reading a POST found damage."""
    post_path: str | None = None
    """Where the newest POST is read from when not from its place."""
    _post: PostRecord | None = field(default=None, repr=False)

    @classmethod
    def read(cls, directory: str) -> Self:
        """List the directory; files that are not ours are left alone."""
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            return cls(directory, False, {})
        parsed = {name: parse_name(name) for name in names}
        return cls(directory, True, {name: found for name, found in parsed.items() if found is not None})

    @property
    def names(self) -> set[str]:
        return set(self.files)

    def _newest(self, wanted: FileKind) -> Timestamp | None:
        return max((timestamp for timestamp, kind in self.files.values() if kind is wanted), default=None)

    @property
    def state(self) -> State:
        """Timestamps without the POST's content type, from the names alone."""
        return State(self._newest(FileKind.DATA), self._newest(FileKind.TOMBSTONE), self._newest(FileKind.POST))

    @property
    def post(self) -> PostRecord | None:
        """The newest POST; StoreFormatError (and `damaged` set) when its file is."""
        timestamp = self._newest(FileKind.POST)
        if timestamp is None:
            return None
        if self._post is None:
            name = file_name(timestamp, FileKind.POST)
            fd = os.open(self.post_path or f"{self.directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._post = post_of(read_tail(fd, timestamp, FileKind.POST).fields)
            except StoreFormatError:
                self.damaged = name
                raise
            finally:
                os.close(fd)
        return self._post

    def entry(self, digest: bytes) -> Entry | None:
        """The object's entry in its partition's comparison."""
        state = self.state
        post = self.post if state.exists else None
        content_type = post.content_type_timestamp if post is not None and post.content_type is not None else ZERO
        return entry_of(digest, State(state.data, state.tombstone, state.post, content_type))

    def after(self, timestamp: Timestamp, kind: FileKind, path: str) -> Held:
        """What the directory will hold once the file at `path` is in its place and has replaced what it replaces."""
        kept = {
            name: (moment, held)
            for name, (moment, held) in self.files.items()
            if not (held is FileKind.POST and moment <= timestamp if kind is FileKind.POST else moment <= timestamp)
        }
        kept[file_name(timestamp, kind)] = (timestamp, kind)
        if kind is FileKind.POST:
            held = Held(self.directory, True, kept, post_path=path)
            assert held.post is not None  # Read now: the file is about to move.
            return held
        return Held(self.directory, True, kept)

    def in_order_of_removal(self) -> list[str]:
        """Names such that a crash between two removals never brings an older version back."""
        return sorted(self.files, key=lambda name: (self.files[name][1] is not FileKind.POST, self.files[name]))
