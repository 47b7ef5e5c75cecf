"""What rows on a stream cost a container server: processor time of `swiftlet container`, by the rows in a message.

    PYTHONPATH=services .venv/bin/python -m bench.listing.bench_stream [--rows 4 8 16] [--rates 100 300] [--streams 2]

The server is the real one, with rings of one replica that name it alone, so that it reports to its own account's
database as each of three does. Streams are a proxy's processes: each sends so many messages a second, whatever becomes
of them, and 0 means the next one when the last is answered. A message's rows go into as many containers as
`--parts` says, the next ones of `--containers` in turn. Prints the server's processor time per row, what it uses idly
taken off, and how long a message waited for its answer.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import yaml

from swiftlet.main.ring_names import ACCOUNT, CONTAINER
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.ring import codec
from swiftlet.ring.builder import RingBuilder
from swiftlet.ring.lookup import Ring
from swiftlet.timestamp import Timestamp, TimestampClock
from swiftlet.transport import row_wire
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.row_wire import Update
from swiftlet.transport.signing import ClusterKey

SECRET = "bench" * 8
KEY = ClusterKey(SECRET.encode())
HASH_PATH = HashPath(b"", SECRET.encode())
AHEAD = 64
"""Messages of one stream without an answer, beyond which its sender waits."""


def used_s(pid: int) -> float:
    """Processor time of a process so far, from the scheduler's nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def prepare(home: Path, port: int) -> Path:
    """Rings and settings of the server; the settings' file."""
    for name in (ACCOUNT, CONTAINER):
        builder = RingBuilder(4, 1.0, 1)
        builder.add_device(host="127.0.0.1", port=port, device="d0", region="r", zone="z", weight=1.0)
        builder.rebalance(1)
        codec.save(builder.ring, home / f"{name}.ring")
    (home / "devices" / "d0").mkdir(parents=True)
    settings = {
        "cluster": {"hash_path_suffix": SECRET, "key": SECRET, "rings": str(home)},
        "container": {
            "host": "127.0.0.1",
            "port": port,
            "devices": ["d0"],
            "devices_dir": str(home / "devices"),
            "native_updates": False,
        },
    }
    (home / "settings.yaml").write_text(yaml.safe_dump(settings))
    return home / "settings.yaml"


class Sender:
    """A stream of row updates to the container server."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, ring: Ring, containers: list[str], number: int) -> None:
        self._socket = socket
        self._places = [(ring.partition_of(HASH_PATH("AUTH_bench", name)), name) for name in containers]
        self._clock = TimestampClock()
        self._number = number
        self._updates = 0
        self._rows = 0
        self._begun: dict[int, float] = {}
        self._heard = asyncio.Event()
        self.latencies: list[float] = []
        self.undurable = 0

    def message(self, rows: int, parts: int) -> bytes:
        """Return the next message: `rows` rows in `parts` updates."""
        updates = []
        for part in range(parts):
            partition, container = self._places[self._updates % len(self._places)]
            found = [self._row() for _ in range(part, rows, parts)]
            updates.append(Update(self._updates, "d0", partition, "AUTH_bench", container, True, found))
            self._updates += 1
        self._begun[updates[-1].number] = time.perf_counter()
        self.undurable += len(updates)
        return row_wire.message([row_wire.update_bytes(update) for update in updates], KEY, "127.0.0.1:1")

    def _row(self) -> ObjectRow:
        self._rows += 1
        name = f"photos/{self._rows % 1000:03}/{self._number}/{self._rows:09}.jpg"
        return ObjectRow(name, self._clock.next(), 10240, f"{self._rows:032x}", "image/jpeg")

    async def read(self) -> None:
        """Take answers until the stream ends."""
        async for message in self._socket:
            answers = row_wire.answers_of(message.data)
            assert not answers.refused, answers.refused
            assert not answers.lost
            now = time.perf_counter()
            for number in answers.taken:
                if (begun := self._begun.pop(number, None)) is not None:
                    self.latencies.append(now - begun)
            self.undurable -= len(answers.durable) + sum(answers.taken.values())
            self._heard.set()

    async def send(self, rows: int, parts: int, rate: float, ends: float) -> int:
        """Send until then; how many messages."""
        count, due = 0, time.perf_counter()
        while time.perf_counter() < ends:
            while len(self._begun) >= (AHEAD if rate else 1):
                self._heard.clear()
                await self._heard.wait()
            await self._socket.send_bytes(self.message(rows, parts))
            count += 1
            if rate:
                due += 1 / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
        while self.undurable:
            self._heard.clear()
            await self._heard.wait()
        return count


async def ready(transport: HttpListingTransport, ring: Ring, containers: list[str]) -> None:
    """Wait for the server, then make the containers."""
    device = ring.primaries(0)[0]
    ends = time.perf_counter() + 60
    for name in containers:
        partition = ring.partition_of(HASH_PATH("AUTH_bench", name))
        while True:
            try:
                await transport.put_container(device, partition, "AUTH_bench", name, Timestamp(1), {}, None, 0)
                break
            except Exception:
                if time.perf_counter() > ends:
                    raise
                await asyncio.sleep(0.2)


async def measure(pid: int, home: Path, arguments: argparse.Namespace) -> None:
    """Each number of rows at each rate."""
    ring = codec.load(home / f"{CONTAINER}.ring")
    device = ring.primaries(0)[0]
    client = NodeClient(HttpSettings(answer_timeout_s=60.0), KEY)
    transport = HttpListingTransport(client)
    containers = [f"container-{number}" for number in range(arguments.containers)]
    await ready(transport, ring, containers)
    senders, readers = [], []
    for number in range(arguments.streams):
        stream = await client.socket(device, row_wire.PATH, row_wire.MAX_MESSAGE)
        assert stream is not None
        senders.append(Sender(stream, ring, containers, number))
        readers.append(asyncio.create_task(senders[-1].read()))
    await asyncio.gather(*(sender.send(8, 1, 50, time.perf_counter() + 2) for sender in senders))
    await asyncio.sleep(1.5)
    before, began = used_s(pid), time.perf_counter()
    await asyncio.sleep(2)
    idle = (used_s(pid) - before) / (time.perf_counter() - began)
    for rate in arguments.rates:
        for rows in arguments.rows:
            for sender in senders:
                sender.latencies.clear()
            before, began = used_s(pid), time.perf_counter()
            ends = began + arguments.seconds
            parts = min(rows, arguments.parts)
            sent = sum(await asyncio.gather(*(one.send(rows, parts, rate, ends) for one in senders)))
            await asyncio.sleep(1.2)  # The account's report is part of the price.
            took = time.perf_counter() - began
            spent = used_s(pid) - before - idle * took
            waited = sorted(delay for sender in senders for delay in sender.latencies)
            print(
                f"{rows:4} rows, {rate or 'any':>5} a second: {sent / arguments.seconds:6.0f} messages/s  "
                f"{spent / sent * 1e6:6.0f} us each  {spent / sent / rows * 1e6:6.1f} us a row  "
                f"answer {statistics.median(waited) * 1000:6.2f} ms, 99% {waited[len(waited) * 99 // 100] * 1000:6.2f}",
                flush=True,
            )
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await transport.close()


def main() -> None:
    """Start the server, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--rates", type=float, nargs="+", default=[100], help="messages a second of each stream")
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--pid-file", type=Path, help="where the server's process id is written, for a profiler")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.directory)))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "swiftlet.main", "container", "--config", str(prepare(home, port))]
        log = stack.enter_context((home / "log").open("wb"))
        server = subprocess.Popen(command, stdout=log, stderr=log)
        if arguments.pid_file:
            arguments.pid_file.write_text(str(server.pid))
        try:
            asyncio.run(measure(server.pid, home, arguments))
        except BaseException:
            sys.stderr.write((home / "log").read_text()[-4000:])
            raise
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


if __name__ == "__main__":
    main()
