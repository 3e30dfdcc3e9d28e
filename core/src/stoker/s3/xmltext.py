"""The XML of answers. Pure: text in, bytes out."""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SAFE_IN_URL = "/-_.~*"
# What XML 1.0 cannot hold as it is. A client that may meet such keys asks for encoding-type=url, as with S3.
_SPECIAL = re.compile('[\x00-\x08\x0b-\x1f&<>"\ud800-\udfff\ufffe\uffff\r]')
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def escape(text: str) -> str:
    """Text between tags. A character that XML has no way to write becomes U+FFFD."""
    return _SPECIAL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _NAMED:
        return _NAMED[character]
    return "\ufffd" if character == "\0" or ord(character) > 0x1F else f"&#x{ord(character):X};"


def key_text(key: bytes, url: bool) -> str:
    """A key for an answer: percent-encoded when the client asked for that, else escaped."""
    return quote_from_bytes(key, _SAFE_IN_URL) if url else escape(key.decode(errors="surrogateescape"))


def element(name: str, value: str | int | bool) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"<{name}>{escape(text)}</{name}>"


def document(name: str, inner: str, *, namespace: bool = False) -> bytes:
    """A whole document. S3 gives its results a namespace and its errors none."""
    xmlns = f' xmlns="{NAMESPACE}"' if namespace else ""
    return f"{_HEAD}<{name}{xmlns}>{inner}</{name}>".encode(errors="replace")
