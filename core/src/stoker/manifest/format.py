"""The bytes of a manifest file: header, inode record, catalogue (docs/design/manifest.md). Not for reading the tree.

header (4096) | records (64 each, breadth first) | names | etags | hidden objects (32 each) | their keys and etags |
catalogue (JSON)
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

VERSION = 2
MAGIC = b"STKRMNFS"
HEADER_BYTES = 4096
MAX_CATALOGUE_BYTES = 64 << 20  # sources and samples of hidden keys; far above what a DataSet may hold

# size, mtime_ns, name offset, name length, flags, etag length, source, reserved, etag offset, parent inode,
# first child inode, number of children. Offsets count from the start of their section.
RECORD = struct.Struct("<QqQBBHHHQQQQ")
RECORD_BYTES = RECORD.size

# Of a hidden object: size, mtime_ns, where key and etag start, length of the key, of the etag, source, flags, reserved.
HIDDEN = struct.Struct("<QqQHHHBB")
HIDDEN_BYTES = HIDDEN.size

DIRECTORY = 1
ARCHIVED = 2
WHOLE_SOURCE = 4
"""The source's uri is this one object: its key is the source's `single`, not prefix and path."""

ROOT = 1
MAX_NAME = 255
MAX_BELOW = 4096  # bytes of a path below its source: PATH_MAX, what a program can name at all
MAX_PATH = 1024 + 1 + MAX_BELOW  # with the mount path of the source in front

# magic, version, header bytes, records, files, directories, bytes of all files,
# length of names, etags and catalogue, hidden objects, length of their keys and etags,
# SHA-256 of all behind the header.
_HEADER = struct.Struct("<8sIIQQQQQQQQQ32s")
_CHECK = struct.Struct("<I")


def corrupt(path: str, what: str) -> StokerError:
    """The error for a manifest that is not what it claims to be."""
    step = "mount the data set again, which lists it anew."
    return StokerError(Reason.ManifestCorrupt, what, place=path, next_step=step)


@dataclass(frozen=True, slots=True)
class Header:
    """What the first 4096 bytes say. The sections follow each other without a gap, so lengths are enough."""

    records: int
    files: int
    directories: int
    total_bytes: int
    names_length: int
    etags_length: int
    catalogue_length: int
    hidden: int
    heap_length: int
    digest: bytes

    @property
    def names_at(self) -> int:
        return HEADER_BYTES + self.records * RECORD_BYTES

    @property
    def etags_at(self) -> int:
        return self.names_at + self.names_length

    @property
    def hidden_at(self) -> int:
        return self.etags_at + self.etags_length

    @property
    def heap_at(self) -> int:
        return self.hidden_at + self.hidden * HIDDEN_BYTES

    @property
    def catalogue_at(self) -> int:
        return self.heap_at + self.heap_length

    @property
    def file_length(self) -> int:
        return self.catalogue_at + self.catalogue_length

    def pack(self) -> bytes:
        counts = (self.records, self.files, self.directories, self.total_bytes)
        lengths = (self.names_length, self.etags_length, self.catalogue_length, self.hidden, self.heap_length)
        fields = _HEADER.pack(MAGIC, VERSION, HEADER_BYTES, *counts, *lengths, self.digest)
        # The digest does not cover the header, so that it names the content; the CRC covers what the digest does not.
        return (fields + _CHECK.pack(zlib.crc32(fields))).ljust(HEADER_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes, path: str) -> Header:
        """Raises StokerError ManifestCorrupt."""
        if len(data) < HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
            raise corrupt(path, "this is not a manifest")
        _, version, header_bytes, *fields = _HEADER.unpack_from(data)
        if version != VERSION or header_bytes != HEADER_BYTES:
            raise corrupt(path, f"this manifest has format version {version}; this program reads version {VERSION}")
        if _CHECK.unpack_from(data, _HEADER.size)[0] != zlib.crc32(data[: _HEADER.size]):
            raise corrupt(path, "the header does not have the checksum it names")
        if any(data[_HEADER.size + _CHECK.size : HEADER_BYTES]):
            raise corrupt(path, "the header has bytes that this format version does not know")
        return cls(*fields)


def shown_uri(uri: str) -> str:
    """`uri` as a manifest holds it: the query of a url is often a signature, which is a credential."""
    return uri.partition("?")[0] if uri.startswith("https://") else uri


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """One source as it was listed; no credentials. `uri` is the DataSet's, `contacted` the one really listed.

    `path` is where it is shown, with a leading slash. A key is `prefix` and the path below `path`, byte for byte;
    `single` is the key of the one object when the uri names an object and not a folder.
    """

    name: str
    uri: str
    path: str
    origin: str
    prefix: bytes
    contacted: str = ""
    single: bytes | None = None

    @property
    def mount(self) -> bytes:
        """`path` as the manifest's paths are written: without slashes at the ends."""
        return self.path.encode(errors="surrogateescape").strip(b"/")

    def to_json(self) -> dict[str, Any]:
        single = None if self.single is None else _text(self.single)
        return {
            **{name: getattr(self, name) for name in ("name", "uri", "path", "origin", "contacted")},
            **{"prefix": _text(self.prefix), "single": single},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ManifestSource:
        single = None if data["single"] is None else _bytes(data["single"])
        return cls(
            name=_string(data["name"]),
            uri=_string(data["uri"]),
            path=_string(data["path"]),
            origin=_string(data["origin"]),
            prefix=_bytes(data["prefix"]),
            contacted=_string(data["contacted"]),
            single=single,
        )


@dataclass(frozen=True, slots=True)
class HiddenKey:
    """A key that the tree cannot show: of which source."""

    source: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What is not a record: the sources, and the keys that are hidden, counted by reason with the first few of each."""

    sources: tuple[ManifestSource, ...]
    hidden: dict[str, int] = field(default_factory=dict)
    samples: dict[str, tuple[HiddenKey, ...]] = field(default_factory=dict)

    def pack(self) -> bytes:
        data = {
            "sources": [source.to_json() for source in self.sources],
            "hidden": self.hidden,
            "samples": {reason: _sample_rows(keys) for reason, keys in self.samples.items()},
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes, path: str) -> Catalogue:
        """Raises StokerError ManifestCorrupt."""
        try:
            parsed = json.loads(data)
            return cls(
                tuple(ManifestSource.from_json(source) for source in parsed["sources"]),
                {Reason(reason).value: _count(count) for reason, count in parsed["hidden"].items()},
                {Reason(reason).value: _samples(rows) for reason, rows in parsed["samples"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise corrupt(path, f"its list of sources cannot be read ({type(error).__name__})") from None


def _sample_rows(keys: Sequence[HiddenKey]) -> list[list[int | str]]:
    return [[hidden.source, _text(hidden.key)] for hidden in keys]


def _samples(rows: list[list[Any]]) -> tuple[HiddenKey, ...]:
    return tuple(HiddenKey(_count(source), _bytes(key)) for source, key in rows)


def _text(key: bytes) -> str:
    return key.decode(errors="surrogateescape")


def _bytes(text: object) -> bytes:
    return _string(text).encode(errors="surrogateescape")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError("not a count")
    return value
