"""Names, units and disk costs: the arithmetic that every process of the cache must agree on. No I/O here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

PAGE = 16 << 10
"""Bytes: the unit of presence and of checksums."""

PAGES_PER_CHUNK = 256
"""One index record holds the bits and checksums of this many pages."""

CHUNK = PAGE * PAGES_PER_CHUNK
"""Bytes (4 MiB): the unit of the index and of a slot of the presence table."""

BLOCK = 4096
"""Bytes: what file systems hand out; the last page of an object and a folder are rounded up to it."""

INLINE_EXTENT_PAGES = 4
"""ext4 keeps four extents in the inode; an object of more pages may need one block of extents per chunk (340 fit)."""

OBJECT_ID_BYTES = 20


def object_id(origin: str, key: bytes, etag: str, size: int) -> bytes:
    """What names one object version on disk. Each field has its length before it, so no two versions can share one.

    `origin` is what is really contacted (scheme, endpoint, account, bucket), `key` the whole key in the store.
    """
    digest = hashlib.blake2b(digest_size=OBJECT_ID_BYTES, person=b"stoker.object.1")
    for part in (origin.encode("utf-8", "surrogateescape"), key, etag.encode(), str(size).encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def owner_id(name: str) -> int:
    """The number that stands for a DataSet (`namespace/name`) in the index and the presence table."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, person=b"stoker.owner.1").digest(), "little")


def object_folder(root: str, oid: bytes) -> str:
    """The folder of an object: one level only (two levels cost 15-24 % of small cold reads, measured)."""
    return f"{root}/objects/{oid[:1].hex()}"


def object_path(root: str, oid: bytes, incarnation: int) -> str:
    """The file of one incarnation of an object. A path is never used twice: incarnations are never given out again."""
    name = oid.hex()
    return f"{root}/objects/{name[:2]}/{name}.{incarnation}"


def parse_object_name(name: str) -> tuple[bytes, int] | None:
    """The inverse of the last part of `object_path`; None for a name that we did not make."""
    stem, dot, number = name.partition(".")
    if not dot or len(stem) != 2 * OBJECT_ID_BYTES or not number.isdecimal() or str(int(number)) != number:
        return None
    try:
        return bytes.fromhex(stem), int(number)
    except ValueError:
        return None


def fetcher_of(oid: bytes, fetchers: int) -> int:
    """Which of so many fetchers an object belongs to (docs/decisions/0003-an-object-belongs-to-one-fetcher.md)."""
    return int.from_bytes(oid[:4], "big") % fetchers


def page_span(offset: int, length: int, size: int) -> tuple[int, int]:
    """The pages [first, last) that hold the bytes [offset, offset + length) of an object of `size` bytes."""
    stop = min(offset + length, size)
    if stop <= offset:
        return (0, 0)
    return (offset // PAGE, -(-stop // PAGE))


def page_count(size: int) -> int:
    """How many pages an object has."""
    return -(-size // PAGE)


def chunk_count(size: int) -> int:
    """How many chunks an object has."""
    return -(-size // CHUNK)


def chunk_pages(size: int, chunk: int) -> int:
    """How many pages of an object of `size` bytes lie in its chunk number `chunk`."""
    return min(PAGES_PER_CHUNK, page_count(size) - chunk * PAGES_PER_CHUNK)


def run_bits(first: int, last: int) -> int:
    """A number with the bits [first, last) set."""
    return ((1 << (last - first)) - 1) << first


def runs_of(bits: int, base: int = 0) -> list[tuple[int, int]]:
    """The runs of set bits as pairs [first, last), each moved by `base`."""
    runs: list[tuple[int, int]] = []
    position = base
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        length = (~bits & (bits + 1)).bit_length() - 1
        runs.append((position + skip, position + skip + length))
        bits >>= length
        position += skip + length
    return runs


def bits_bytes(size: int, chunk: int, bits: int) -> int:
    """Bytes of the object that the pages `bits` of `chunk` hold."""
    last = page_count(size) - 1 - chunk * PAGES_PER_CHUNK
    short = page_count(size) * PAGE - size if 0 <= last < PAGES_PER_CHUNK and bits >> last & 1 else 0
    return bits.bit_count() * PAGE - short


def pages_cost(size: int, chunk: int, bits: int) -> int:
    """Bytes of disk that the pages `bits` of `chunk` take: whole pages, the object's last one rounded to a block."""
    held = bits_bytes(size, chunk, bits)
    return -(-held // BLOCK) * BLOCK


def chunk_overhead(size: int) -> int:
    """Bytes of disk for the extents of one touched chunk, beside its pages."""
    return BLOCK if page_count(size) > INLINE_EXTENT_PAGES else 0


def charge(size: int, chunk: int, new: int, before: int) -> int:
    """Bytes of disk that the pages `new` add to a chunk that holds the pages `before`."""
    added = new & ~before
    if not added:
        return 0
    return pages_cost(size, chunk, added) + (0 if before else chunk_overhead(size))


def object_cost(size: int) -> int:
    """Bytes of disk that a whole object takes: what its chunks are charged together."""
    return -(-size // BLOCK) * BLOCK + chunk_count(size) * chunk_overhead(size)


def tier_of(oid: bytes, seeds: Sequence[bytes]) -> int:
    """Which tier holds an object: rendezvous hash over the tiers' own seeds, so that a look-up needs one index, and
    adding a tier moves only that tier's share."""
    if len(seeds) == 1:
        return 0
    weights = [hashlib.blake2b(oid, digest_size=8, key=seed).digest() for seed in seeds]
    return weights.index(max(weights))
