"""One request as it came, taken apart: method, bucket, key, query, headers. Pure; nothing is normalised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes


@dataclass(frozen=True, slots=True)
class S3Request:
    """`path` and `query` are decoded bytes, headers have lower-case names; several of one are joined by commas."""

    method: str
    path: bytes
    query: tuple[tuple[bytes, bytes], ...]
    headers: Mapping[str, str]
    target: str = ""

    @classmethod
    def parse(cls, method: str, target: str, headers: Sequence[tuple[str, str]]) -> S3Request:
        """`target`: as in the request line."""
        raw = target.encode("utf-8", "surrogateescape")
        if b"://" in raw.partition(b"?")[0] and not raw.startswith(b"/"):  # the absolute form, as proxies send it
            raw = b"/" + raw.partition(b"://")[2].partition(b"/")[2]
        path, _, query = raw.partition(b"?")
        joined: dict[str, str] = {}
        for name, value in headers:
            lower, clean = name.lower(), " ".join(value.split())
            joined[lower] = f"{joined[lower]},{clean}" if lower in joined else clean
        return cls(method, unquote_to_bytes(path), _pairs(query), joined, target)

    @property
    def bucket(self) -> str:
        return self.path[1:].partition(b"/")[0].decode(errors="replace")

    @property
    def key(self) -> bytes:
        """Empty for the bucket itself, with or without a slash behind its name."""
        return self.path[1:].partition(b"/")[2]

    def param(self, name: str) -> bytes | None:
        """A parameter of the query; the first of several."""
        wanted = name.encode()
        return next((value for found, value in self.query if found == wanted), None)

    def text(self, name: str) -> str | None:
        value = self.param(name)
        return None if value is None else value.decode(errors="replace")


def _pairs(query: bytes) -> tuple[tuple[bytes, bytes], ...]:
    pairs = []
    for part in query.split(b"&"):
        if part:
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return tuple(pairs)
