"""Frames survive any cut of the stream; clients survive any death of their fetcher; counters keep to their session."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.fetch.client import FetchClient
from stoker.fetch.counters import Counter, Counters, create_counters, total
from stoker.fetch.protocol import (
    KIND_READ,
    ProtocolError,
    Reply,
    ReplyFrames,
    Request,
    RequestFrames,
    Status,
    data_header,
    mark_of,
    present,
)
from stoker.fetch.session import MountSpec, SessionSpec
from stoker.sources.base import Credentials, SourceSpec

ERROR = StokerError(Reason.SourceChanged, "gone", place="s3://b/k", next_step="mount again.")
REQUESTS = [Request(n, KIND_READ, 3, 7, 2**40 + n, 2**45, 131072) for n in range(4)]
REPLIES = [
    Reply(1, Status.PRESENT, 9),
    Reply(2, Status.DATA, 5, b"bytes"),
    Reply.failed(3, 5, ERROR),
    Reply(4, Status.DATA),
]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(stream) + 1) for place in places} | {len(stream)})
    return [stream[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@given(st.lists(st.integers(0, 1000), max_size=10))
def test_requests_and_replies_come_out_whole_however_they_are_cut(places: list[int]) -> None:
    requests, replies = RequestFrames(), ReplyFrames()
    stream = b"".join(request.pack() for request in REQUESTS)
    assert [one for part in cut(stream, places) for one in requests.feed(part)] == REQUESTS
    stream = b"".join(reply.pack() for reply in REPLIES)
    assert [one for part in cut(stream, places) for one in replies.feed(part)] == REPLIES


def test_short_forms_are_the_same_frames() -> None:
    assert present(1, 9) == REPLIES[0].pack()
    assert data_header(2, 5, 5) + b"bytes" == REPLIES[1].pack()
    assert str(StokerError.from_json(REPLIES[2].error())) == str(ERROR)
    assert mark_of(bytes(20)) != 0


def test_a_stream_that_is_out_of_step_is_refused() -> None:
    with pytest.raises(ProtocolError):
        ReplyFrames().feed(b"\xff" * 64)


def test_a_session_survives_its_json_and_shows_no_secret() -> None:
    keys = Credentials("static", "ID", "SECRET")
    source = SourceSpec("a", "s3://b/", include=("*.tar",), options=(("x", "y"),), credentials=keys)
    spec = SessionSpec("s", 3, "ns/name", "/m", (source,), MountSpec(uid=5, policy="Bypass"))
    assert SessionSpec.from_json(spec.to_json()) == spec
    assert "SECRET" not in repr(spec)


class Fetcher:
    """The other end of a client, by hand."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.listen()

    def listen(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()

    def accept(self) -> None:
        self.connection, _ = self.listener.accept()

    def requests(self) -> list[Request]:
        return RequestFrames().feed(self.connection.recv(1 << 16))

    def die(self) -> None:
        self.connection.close()
        self.listener.close()
        os.unlink(self.path)


def test_a_client_asks_again_for_what_is_outstanding_and_never_reuses_a_number_unseen(tmp_path: Path) -> None:
    now = 0.0
    fetcher = Fetcher(str(tmp_path / "s"))
    client = FetchClient(fetcher.path, lambda: now)
    before = client.fileno()
    fetcher.accept()
    answered, kept, cancelled = (client.request(KIND_READ, 0, 1, inode, 0, 10) for inode in (1, 2, 3))
    assert [one.id for one in fetcher.requests()] == [answered, kept, cancelled]
    fetcher.connection.sendall(present(answered, 1))
    assert [reply.id for reply in client.on_readable()] == [answered]
    fetcher.die()
    client.cancel(cancelled)
    assert client.on_readable() == []
    assert client.fileno() == -1, "the loss is seen, even if the next connection has the same number"
    fetcher.listen()
    now += client.retry_s
    assert client.fileno() >= 0
    fetcher.accept()
    assert [one.id for one in fetcher.requests()] == [kept]
    assert before >= 0
    fetcher.connection.sendall(present(kept, 1) + present(cancelled, 1))
    assert [reply.id for reply in client.on_readable()] == [kept]
    client.close()
    fetcher.die()


def test_a_client_without_a_fetcher_keeps_what_is_asked(tmp_path: Path) -> None:
    now = 0.0
    path = str(tmp_path / "s")
    client = FetchClient(path, lambda: now)
    assert client.fileno() == -1
    number = client.request(KIND_READ, 0, 1, 1, 0, 10)
    waits = []
    for _ in range(10):
        waits.append(client.retry_s)
        now += client.retry_s
        assert client.fileno() == -1
    assert waits[0] < 0.02
    assert waits[-1] == pytest.approx(1.0)
    fetcher = Fetcher(path)
    now += client.retry_s
    assert client.fileno() >= 0
    fetcher.accept()
    assert [one.id for one in fetcher.requests()] == [number]
    client.close()
    fetcher.die()


def test_counts_begin_at_zero_for_a_new_session_and_outlive_their_writer() -> None:
    fd = create_counters()
    first = Counters(fd)
    first.claim(3, "a")
    first.add(3, Counter.HIT_BYTES, 10)
    first.close()
    second = Counters(fd)
    second.claim(3, "a")
    second.add(3, Counter.HIT_BYTES, 5)
    assert second.read(3)["hit_bytes"] == 15
    assert total([second.read(3), second.read(3), second.read(4)])["hit_bytes"] == 30
    second.claim(3, "b")
    assert second.read(3)["hit_bytes"] == 0
    second.close()
    os.close(fd)
