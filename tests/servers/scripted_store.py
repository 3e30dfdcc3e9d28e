"""A store that misbehaves on demand: S3 (path style) and plain web server in one, on a thread, with raw sockets.

It serves objects rightly until a scenario is put on a key (`on`) or on listings (`on_list`). A scenario is a function
that takes the request and the right response, and gives the one to send; `servers.scenarios` has many. Signatures are
not checked.

    with running_store() as store:
        store.put("a.bin", data)
        store.on("a.bin", truncated(100, reset=True), times=1)
        ...                                   # read s3://bucket/a.bin at store.endpoint, or store.url("a.bin")
        assert store.count("a.bin") == 2
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote_from_bytes, quote_plus, unquote_to_bytes

BUCKET = "bucket"
_PAGE = 1000


@dataclass(frozen=True)
class Request:
    """What came in. `key` is everything behind the bucket, as bytes; header names are in lower case."""

    method: str
    target: str
    key: bytes
    query: dict[str, bytes]
    headers: dict[str, str]

    @property
    def is_list(self) -> bool:
        return "list-type" in self.query


@dataclass(frozen=True)
class Response:
    """What goes out. Content-Length is that of `body` unless it stands in `headers`; None leaves a header out.

    `end`: `keep` the connection, `close` it (FIN) after the body, `reset` it (RST), or `hang`: send nothing more.
    """

    status: int = 200
    headers: dict[str, str | None] = field(default_factory=dict)
    body: bytes = b""
    end: str = "keep"
    silent: bool = False
    """Send nothing at all."""
    pace: int = 0
    """Bytes per second; 0: all at once."""
    delay: float = 0.0
    """Seconds before anything is sent."""

    def having(self, **headers: str | None) -> Response:
        """The same with other headers; `content_range="..."` is Content-Range."""
        named = {name.replace("_", "-").title(): value for name, value in headers.items()}
        others = {name: value for name, value in self.headers.items() if name.title() not in named}
        return replace(self, headers={**others, **named})


Scenario = Callable[[Request, Response], Response]


@dataclass
class Stored:
    """One object. `etag` as it stands in headers, quotes and all; empty = none."""

    data: bytes
    etag: str
    modified: datetime
    storage_class: str = "STANDARD"
    headers: dict[str, str | None] = field(default_factory=dict)


class ScriptedStore:
    """The store and what was asked of it. Used from the test's thread."""

    def __init__(self) -> None:
        self.objects: dict[bytes, Stored] = {}
        self.requests: list[Request] = []
        self.endpoint = ""
        self._scenarios: dict[bytes | None, list[tuple[Scenario, int | None]]] = {}

    def put(self, key: str | bytes, data: bytes, etag: str | None = None, **more: object) -> None:
        """Put or replace an object. Its etag is the MD5 of `data` unless given."""
        etag = f'"{hashlib.md5(data).hexdigest()}"' if etag is None else etag
        modified = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        stored = Stored(data, etag, modified)
        self.objects[_raw(key)] = replace(stored, **more)  # type: ignore[arg-type]

    def on(self, key: str | bytes, scenario: Scenario, times: int | None = None) -> None:
        """Answer requests for `key` by `scenario`, `times` times or for ever; one scenario follows the other."""
        self._scenarios.setdefault(_raw(key), []).append((scenario, times))

    def on_list(self, scenario: Scenario, times: int | None = None) -> None:
        """The same for listings."""
        self._scenarios.setdefault(None, []).append((scenario, times))

    def url(self, key: str) -> str:
        """Where a web client finds an object."""
        return f"{self.endpoint}/{BUCKET}/{quote_from_bytes(key.encode())}"

    def source(self, below: str = "") -> dict[str, Any]:
        """What stands in `spec.sources` for everything, or for what is below a prefix (or is one object)."""
        return {"uri": f"s3://{BUCKET}/{below}", "endpoint": self.endpoint, "region": "us-east-1"}

    def of(self, key: str | bytes | None, method: str | None = None) -> list[Request]:
        """The requests for a key, or with None the listings."""
        found = [r for r in self.requests if (r.is_list if key is None else not r.is_list and r.key == _raw(key))]
        return [r for r in found if method in (None, r.method)]

    def count(self, key: str | bytes | None, method: str | None = None) -> int:
        return len(self.of(key, method))

    def answer(self, request: Request) -> Response:
        self.requests.append(request)
        right = self._list(request) if request.is_list else self.serve(request)
        waiting = self._scenarios.get(None if request.is_list else request.key, [])
        if not waiting:
            return right
        scenario, times = waiting[0]
        if times is not None:
            waiting[0] = (scenario, times - 1)
            if times <= 1:
                del waiting[0]
        return scenario(request, right)

    def serve(self, request: Request) -> Response:
        """The right answer for one object."""
        stored = self.objects.get(request.key)
        if stored is None:
            return s3_error(404, "NoSuchKey")
        if request.headers.get("if-match", stored.etag) != stored.etag:
            return s3_error(412, "PreconditionFailed")
        headers: dict[str, str | None] = {
            "ETag": stored.etag or None,
            "Last-Modified": format_datetime(stored.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "x-amz-storage-class": stored.storage_class,
            **stored.headers,
        }
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if asked is None:
            return Response(200, headers, stored.data)
        size = len(stored.data)
        start, last = int(asked[1]), min(int(asked[2] or size), size - 1)
        if start > last:
            return s3_error(416, "InvalidRange").having(content_range=f"bytes */{size}")
        return Response(
            206, {**headers, "Content-Range": f"bytes {start}-{last}/{size}"}, stored.data[start : last + 1]
        )

    def _list(self, request: Request) -> Response:
        query = request.query
        prefix, delimiter = query.get("prefix", b""), query.get("delimiter", b"")
        after = unquote_to_bytes(query.get("continuation-token", b"").replace(b"+", b" "))
        rows: dict[bytes, Stored | None] = {}
        for key in sorted(self.objects):
            if key.startswith(prefix):
                head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, b"", b"")
                rows[prefix + head + found if found else key] = None if found else self.objects[key]
        names = [name for name in sorted(rows) if name > after]
        page = names[:_PAGE]
        more = len(names) > len(page)
        token = quote_plus(page[-1]) if more else ""
        objects = [(name, rows[name]) for name in page]
        return listing(
            [(name, stored) for name, stored in objects if stored is not None],
            [name for name, stored in objects if stored is None],
            token,
        )


def listing(objects: list[tuple[bytes, Stored]], prefixes: list[bytes] | None = None, token: str = "") -> Response:
    """A page of ListObjectsV2, keys in the encoding of encoding-type=url."""
    rows = [_contents(key, stored) for key, stored in objects]
    rows += [f"<CommonPrefixes><Prefix>{quote_plus(p, safe='/')}</Prefix></CommonPrefixes>" for p in prefixes or []]
    following = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return listing_body(
        f"<EncodingType>url</EncodingType><KeyCount>{len(rows)}</KeyCount>"
        f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{following}{''.join(rows)}"
    )


def listing_body(inside: str | bytes) -> Response:
    """A listing of hand-written elements."""
    start = (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    )
    return Response(200, {"Content-Type": "application/xml"}, start + _raw(inside) + b"</ListBucketResult>")


def _contents(key: bytes, stored: Stored) -> str:
    modified = stored.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    etag = stored.etag.replace('"', "&quot;")
    return (
        f"<Contents><Key>{quote_plus(key, safe='/')}</Key><LastModified>{modified}</LastModified><ETag>{etag}</ETag>"
        f"<Size>{len(stored.data)}</Size><StorageClass>{stored.storage_class}</StorageClass></Contents>"
    )


def s3_error(status: int, code: str, **headers: str | None) -> Response:
    body = f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode()
    return Response(status, {"Content-Type": "application/xml"}, body).having(**headers)


@contextlib.contextmanager
def running_store(store: ScriptedStore | None = None) -> Iterator[ScriptedStore]:
    """A store on a free port, or one that has run before at its old address; served by a thread with its own loop."""
    store = store or ScriptedStore()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(_listen(store))
    store.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, name="scripted-store")
    thread.start()
    try:
        yield store
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _listen(store: ScriptedStore) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _exchange(store, reader, writer):
                pass
            writer.close()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()  # `close` would wait for a client that reads no more

    port = int(store.endpoint.rpartition(":")[2] or 0)
    return await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20)


async def _stop(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # the sockets are closed one round later


async def _exchange(store: ScriptedStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """One request and its answer; whether the connection lives on."""
    request = _parse(await reader.readuntil(b"\r\n\r\n"))
    response = store.answer(request)
    await asyncio.sleep(response.delay)
    if not response.silent:
        writer.write(_head(response))
        body = b"" if request.method == "HEAD" else response.body
        step = response.pace // 10 or max(1, len(body))
        for start in range(0, len(body), step):
            writer.write(body[start : start + step])
            await writer.drain()
            await asyncio.sleep(0.1 if response.pace else 0)
    if response.end == "hang":
        await reader.read()
    if response.end == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    return response.end == "keep"


def _parse(raw: bytes) -> Request:
    first, *lines = raw.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = re.sub(r"^http://[^/]+", "", target).partition("?")  # whole, when it was asked as a proxy
    pairs = (part.partition("=") for part in query.split("&") if part)
    headers = dict(line.split(": ", 1) for line in lines if line)
    return Request(
        method,
        target,
        unquote_to_bytes(path.removeprefix(f"/{BUCKET}").removeprefix("/")),
        {name: unquote_to_bytes(value) for name, _, value in pairs},
        {name.lower(): value for name, value in headers.items()},
    )


def _head(response: Response) -> bytes:
    headers = {"Content-Length": str(len(response.body)), **response.headers}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"HTTP/1.1 {response.status} Scripted", *lines, "", ""]).encode("latin-1")


def _raw(key: str | bytes) -> bytes:
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
