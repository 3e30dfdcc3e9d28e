"""One page of a ListObjectsV2 answer, from its bytes to entries. Pure.

Not an XML parser: XML 1.0 has no way to carry control characters, stores send them all the same (raw or as `&#x1;`),
and a parser then loses the key or the page. The answer is a flat list of known elements, so it is read as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from urllib.parse import unquote_to_bytes

from stoker.sources.base import ObjectEntry
from stoker.sources.text import etag_of, ns_of_iso_date

_ARCHIVED = (b"GLACIER", b"DEEP_ARCHIVE")  # GLACIER_IR is read at once
_FIELD = re.compile(rb"<(Key|LastModified|ETag|Size|StorageClass)>([^<]*)</")
_CONTENTS = re.compile(rb"<Contents>(.*?)</Contents>", re.DOTALL)
_PREFIX = re.compile(rb"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_WANTED = (b"Key", b"Size", b"ETag", b"LastModified", b"StorageClass")
_PLAIN = re.compile(rb"(?:<\w+>[^<]*</\w+>)+")
_ENTITY = re.compile(rb"&(?:#x([0-9A-Fa-f]{1,6})|#([0-9]{1,7})|(amp|lt|gt|quot|apos));")
_NAMED = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}


class PageError(ValueError):
    """This is not a whole page of a listing."""


@dataclass(frozen=True, slots=True)
class Page:
    """`token` asks for the next page; empty after the last one."""

    entries: list[ObjectEntry]
    prefixes: list[bytes]
    token: str


def token_of(body: bytes) -> str:
    """The token of the next page alone, so that it can be asked for while this page is read."""
    token = _unescape(_text(body, b"NextContinuationToken")).decode("utf-8", "surrogateescape")
    truncated = _text(body, b"IsTruncated").strip()
    if truncated == b"true" and not token:
        raise PageError("it is truncated and names no next page")
    return "" if truncated == b"false" else token


def _text(body: bytes, name: bytes) -> bytes:
    """What the one element of this name holds; empty when it is not there."""
    start = body.find(b"<" + name + b">")
    if start < 0:
        return b""
    start += len(name) + 2
    return body[start : body.find(b"<", start)]


def check_whole(body: bytes) -> None:
    """Raises PageError for a body that is cut, is no listing, or hides its next page."""
    if not body.rstrip().endswith(b"</ListBucketResult>"):
        raise PageError("it does not end as a listing ends")
    token_of(body)


def parse_page(body: bytes) -> Page:
    """Raises PageError for a body that holds what is not expected of a listing."""
    # Around each etag; all at once is much faster than one by one.
    body = body.replace(b"&quot;", b'"').replace(b"&#34;", b'"')
    encoded = _text(body, b"EncodingType") == b"url"
    rows = _rows(body)
    prefixes = [_key(raw, encoded) for raw in _PREFIX.findall(body)]
    if len(rows) != body.count(b"</Contents>") or len(prefixes) != body.count(b"</CommonPrefixes>"):
        raise PageError("it holds elements of another form")
    try:
        entries = [
            ObjectEntry(_key(key, encoded), int(size), _etag(etag), _time(modified), kind in _ARCHIVED)
            for key, size, etag, modified, kind in rows
        ]
    except ValueError:
        raise PageError("an object has no size") from None
    if not all(entry.key for entry in entries):
        raise PageError("an object has no key")
    return Page(entries, prefixes, token_of(body))


def _rows(body: bytes) -> list[tuple[bytes, ...]]:
    """The wanted fields of each object. A store writes all objects alike, which one expression reads fastest."""
    first = _CONTENTS.search(body)
    if first is None:
        return []
    rows: list[tuple[bytes, ...]] = []
    if _PLAIN.fullmatch(first[1]):
        regex, in_order = _alike(tuple(re.findall(rb"<(\w+)>", first[1])))
        rows = list(map(in_order, regex.findall(body)))
    if len(rows) == body.count(b"</Contents>"):
        return rows
    blocks = (dict(_FIELD.findall(block)) for block in _CONTENTS.findall(body))
    return [tuple(block.get(name, b"") for name in _WANTED) for block in blocks]


@lru_cache(maxsize=64)
def _alike(names: tuple[bytes, ...]) -> tuple[re.Pattern[bytes], Callable[[tuple[bytes, ...]], tuple[bytes, ...]]]:
    """For objects with exactly these elements: what finds the wanted ones, and what puts them in the wanted order."""
    inside = b"".join((b"<%s>([^<]*)</%s>" if name in _WANTED else b"<%s>[^<]*</%s>") % (name, name) for name in names)
    missing = [name for name in _WANTED if name not in names]
    found = [name for name in names if name in _WANTED] + missing
    regex = re.compile(b"<Contents>" + inside + b"</Contents>" + b"()" * len(missing))
    return regex, itemgetter(*(found.index(name) for name in _WANTED))


def _key(raw: bytes, encoded: bool) -> bytes:
    key = _unescape(raw)
    # encoding-type=url is the encoding of forms: a plus is a space, and a real plus is %2B.
    return unquote_to_bytes(key.replace(b"+", b" ")) if encoded and (b"%" in key or b"+" in key) else key


def _etag(raw: bytes) -> str:
    return etag_of(_unescape(raw).decode("latin-1"))


@lru_cache(maxsize=4096)
def _time(raw: bytes) -> int:
    return ns_of_iso_date(raw.decode("latin-1"))


def _unescape(raw: bytes) -> bytes:
    return _ENTITY.sub(_character, raw) if b"&" in raw else raw


def _character(match: re.Match[bytes]) -> bytes:
    if match[3]:
        return _NAMED[match[3]]
    number = int(match[1], 16) if match[1] else int(match[2])
    return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else match[0]
