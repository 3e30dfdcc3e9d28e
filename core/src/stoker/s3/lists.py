"""ListObjects and ListObjectsV2: the parameters of a request, one page, and its XML."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from itertools import islice

from stoker.manifest.manifest import Manifest
from stoker.s3.conditions import quoted
from stoker.s3.errors import S3Error
from stoker.s3.listing import Item, entries, successor
from stoker.s3.request import S3Request
from stoker.s3.times import iso_date
from stoker.s3.xmltext import document, element, key_text

MOST_KEYS = 1000
"""Of one page, as with S3."""
_STORAGE_CLASS = "STANDARD"


@dataclass(frozen=True, slots=True)
class Listing:
    """What is asked for. `lower`: the least key that may come."""

    version: int
    prefix: bytes
    delimiter: bytes
    lower: bytes
    most: int
    url: bool
    after: bytes = b""
    token: str = ""

    @classmethod
    def of(cls, request: S3Request) -> Listing:
        """Raises S3Error InvalidArgument."""
        version = 2 if request.text("list-type") == "2" else 1
        encoding = request.text("encoding-type")
        if encoding not in (None, "url"):
            raise S3Error(
                "InvalidArgument", "Invalid Encoding Method specified in Request", {"ArgumentName": "encoding-type"}
            )
        after = request.param("start-after" if version == 2 else "marker") or b""
        lower = after + b"\0" if after else b""
        token = request.text("continuation-token") if version == 2 else None
        if token is not None:
            lower = _from_token(token)
        delimiter = request.param("delimiter") or b""
        if version == 1 and delimiter and after.endswith(delimiter):
            lower = max(
                lower, successor(after) or lower
            )  # NextMarker may be a common prefix: what it stands for was told
        return cls(
            version=version,
            prefix=request.param("prefix") or b"",
            delimiter=delimiter,
            lower=lower,
            most=_most(request.text("max-keys")),
            url=encoding == "url",
            after=after,
            token=token or "",
        )


def list_objects(bucket: str, manifest: Manifest, wanted: Listing) -> bytes:
    """One page as XML."""
    found = list(islice(entries(manifest, wanted.prefix, wanted.delimiter, wanted.lower), wanted.most + 1))
    page = found[: wanted.most]
    truncated = len(found) > len(page) > 0
    parts = [element("Name", bucket), f"<Prefix>{key_text(wanted.prefix, wanted.url)}</Prefix>"]
    if wanted.delimiter:
        parts.append(f"<Delimiter>{key_text(wanted.delimiter, wanted.url)}</Delimiter>")
    parts += [element("MaxKeys", wanted.most), element("IsTruncated", truncated)]
    if wanted.url:
        parts.append(element("EncodingType", "url"))
    parts += _place(wanted, page, truncated)
    parts += [_content(item, manifest, wanted.url) for item in page if item.inode]
    parts += [_common(item, wanted.url) for item in page if not item.inode]
    return document("ListBucketResult", "".join(parts), namespace=True)


def _place(wanted: Listing, page: list[Item], truncated: bool) -> list[str]:
    """Where the page begins, and how to get the next one."""
    if wanted.version == 1:
        parts = [f"<Marker>{key_text(wanted.after, wanted.url)}</Marker>"]
        return [*parts, f"<NextMarker>{key_text(page[-1].key, wanted.url)}</NextMarker>"] if truncated else parts
    parts = [element("KeyCount", len(page))]
    if wanted.after:
        parts.append(f"<StartAfter>{key_text(wanted.after, wanted.url)}</StartAfter>")
    if wanted.token:
        parts.append(element("ContinuationToken", wanted.token))
    if truncated:
        parts.append(element("NextContinuationToken", _to_token(page[-1])))
    return parts


def _content(item: Item, manifest: Manifest, url: bool) -> str:
    etag = manifest.etag(item.inode)
    shown = element("ETag", quoted(etag)) if etag else ""
    return (
        f"<Contents><Key>{key_text(item.key, url)}</Key><LastModified>{iso_date(item.mtime_ns)}</LastModified>"
        f"{shown}<Size>{item.size}</Size><StorageClass>{_STORAGE_CLASS}</StorageClass></Contents>"
    )


def _common(item: Item, url: bool) -> str:
    return f"<CommonPrefixes><Prefix>{key_text(item.key, url)}</Prefix></CommonPrefixes>"


def _to_token(last: Item) -> str:
    """The least key of the next page. It stays good when another generation is mounted meanwhile."""
    following = last.key + b"\0" if last.inode else successor(last.key)
    return base64.urlsafe_b64encode(following or last.key).decode()


def _from_token(token: str) -> bytes:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        text = "The continuation token provided is incorrect"
        raise S3Error("InvalidArgument", text, {"ArgumentName": "continuation-token"}) from None


def _most(text: str | None) -> int:
    if text is None or text == "":
        return MOST_KEYS
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise S3Error(
            "InvalidArgument", "Provided max-keys not an integer or within integer range", {"ArgumentName": "max-keys"}
        )
    return min(int(text), MOST_KEYS)
