"""A TCP relay in a process of its own, between a client and the store: delays, counts, or joins two networks.

What the client sends arrives `delay_s` later, and so does its connection; what the store sends passes as it comes, in
the kernel. So each request takes `delay_s` longer, as over a link with that round trip, and no byte/s is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COUNT = struct.Struct("=Q")
_PIECE = 1 << 20


@dataclass(frozen=True)
class Relay:
    """One that runs."""

    port: int
    counter: Path

    def bytes_received(self) -> int:
        """What the store has sent through it, headers included."""
        return int(_COUNT.unpack(self.counter.read_bytes())[0])


@contextlib.contextmanager
def running_relay(
    folder: Path, to_port: int, *, delay_s: float = 0, at: socket.socket | None = None
) -> Iterator[Relay]:
    """From a listening socket (one on 127.0.0.1 unless given) to a port of this machine."""
    listener = at or socket.create_server(("127.0.0.1", 0), backlog=256)
    port = listener.getsockname()[1]
    counter = folder / f"relay-{port}"
    counter.write_bytes(_COUNT.pack(0))
    arguments = [str(listener.fileno()), str(to_port), str(delay_s), str(counter)]
    with listener:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "bench.relay", *arguments],
            pass_fds=[listener.fileno()],
        )
    try:
        yield Relay(port, counter)
    finally:
        process.kill()
        process.wait()


class _Relay:
    def __init__(self, port: int, delay_s: float, counter: str) -> None:
        self._port, self._delay_s = port, delay_s
        self._lock = threading.Lock()
        self._total = 0
        with open(counter, "r+b") as file:
            self._counter = mmap.mmap(file.fileno(), _COUNT.size)

    def serve(self, client: socket.socket) -> None:
        """One connection, to its end."""
        time.sleep(self._delay_s)
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as store:
            for sock in (client, store):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            there = threading.Thread(target=self._requests, args=(client, store), daemon=True)
            there.start()
            try:
                self._answers(store, client)
            finally:
                for sock in (client, store):
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)
                there.join()

    def _requests(self, client: socket.socket, store: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_PIECE):
                time.sleep(self._delay_s)
                store.sendall(data)
            store.shutdown(socket.SHUT_WR)

    def _answers(self, store: socket.socket, client: socket.socket) -> None:
        out, into = os.pipe()
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIECE)
        try:
            while count := os.splice(store.fileno(), into, _PIECE):
                self._count(count)
                while count:
                    count -= os.splice(out, client.fileno(), count)
        finally:
            os.close(out)
            os.close(into)

    def _count(self, count: int) -> None:
        with self._lock:
            self._total += count
            self._counter[:] = _COUNT.pack(self._total)


def main(listener: str, port: str, delay_s: str, counter: str) -> None:
    relay = _Relay(int(port), float(delay_s), counter)
    accepting = socket.socket(fileno=int(listener))
    while True:
        client, _address = accepting.accept()
        threading.Thread(target=relay.serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
