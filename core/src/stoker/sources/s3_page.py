"""One page of a ListObjectsV2 answer, from its bytes to entries. Pure.

Not an XML parser: XML 1.0 has no way to carry control characters, stores send them all the same (raw or as `&#x1;`),
and a parser then loses the key or the page. The answer is a flat list of known elements, so it is read as bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from stoker.sources.base import ObjectEntry
from stoker.sources.text import etag_of, ns_of_iso_date

_ARCHIVED = (b"GLACIER", b"DEEP_ARCHIVE")  # GLACIER_IR is read at once
_FIELD = re.compile(rb"<(Key|LastModified|ETag|Size|StorageClass)>([^<]*)</")
_CONTENTS = re.compile(rb"<Contents>(.*?)</Contents>", re.DOTALL)
_PREFIX = re.compile(rb"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_TOP = re.compile(rb"<(IsTruncated|NextContinuationToken|EncodingType|KeyCount)>([^<]*)</")
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
    top = dict(_TOP.findall(body))
    token = _unescape(top.get(b"NextContinuationToken", b"")).decode("utf-8", "surrogateescape")
    truncated = top.get(b"IsTruncated", b"").strip()
    if truncated == b"true" and not token:
        raise PageError("it is truncated and names no next page")
    return "" if truncated == b"false" else token


def check_whole(body: bytes) -> None:
    """Raises PageError for a body that is cut, is no listing, or hides its next page."""
    if not body.rstrip().endswith(b"</ListBucketResult>"):
        raise PageError("it does not end as a listing ends")
    token_of(body)


def parse_page(body: bytes) -> Page:
    """Raises PageError for a body that holds what is not expected of a listing."""
    encoded = b"<EncodingType>url</EncodingType>" in body
    blocks = _CONTENTS.findall(body)
    prefixes = [_key(raw, encoded) for raw in _PREFIX.findall(body)]
    if len(blocks) != body.count(b"</Contents>") or len(prefixes) != body.count(b"</CommonPrefixes>"):
        raise PageError("it holds elements of another form")
    return Page([_entry(block, encoded) for block in blocks], prefixes, token_of(body))


def _entry(block: bytes, encoded: bool) -> ObjectEntry:
    fields = dict(_FIELD.findall(block))
    try:
        key, size = _key(fields[b"Key"], encoded), int(fields[b"Size"])
    except (KeyError, ValueError):
        raise PageError("an object has no key or no size") from None
    etag = _unescape(fields.get(b"ETag", b"")).decode("latin-1")
    archived = fields.get(b"StorageClass") in _ARCHIVED
    return ObjectEntry(key, size, etag_of(etag), _time(fields.get(b"LastModified", b"")), archived)


def _key(raw: bytes, encoded: bool) -> bytes:
    key = _unescape(raw)
    # encoding-type=url is the encoding of forms: a plus is a space, and a real plus is %2B.
    return unquote_to_bytes(key.replace(b"+", b" ")) if encoded else key


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
