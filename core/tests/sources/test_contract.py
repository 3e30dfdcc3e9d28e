"""What every store must do alike: SeaweedFS, the scripted store while it behaves, local files."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from stoker.api.reasons import Reason
from stoker.sources.base import SourceError


async def names(origin: Any, listed: Any, source: Any) -> list[bytes]:
    """Keys relative to the root of the origin, in order."""
    start = len(origin.key("x")) - 1
    return sorted(entry.key[start:] for entry in await listed(source))


async def test_lists_everything_below_the_prefix_and_nothing_beside_it(origin, opened, listed):
    for key in ("a/1", "a/b/2", "a/b/c/3", "ab/4", "z"):
        origin.put(key, key.encode())
    assert await names(origin, listed, opened(origin.spec("a/"))) == [b"a/1", b"a/b/2", b"a/b/c/3"]
    assert await names(origin, listed, opened(origin.spec("a"))) == [b"a/1", b"a/b/2", b"a/b/c/3"]
    assert len(await listed(opened(origin.spec()))) == 5


async def test_entry_has_the_size_time_and_a_version_that_head_confirms(origin, opened, listed):
    origin.put("x/data", b"12345")
    source = opened(origin.spec())
    (entry,) = await listed(source)
    assert entry.key == origin.key("x/data")
    assert entry.size == 5
    assert entry.etag
    assert '"' not in entry.etag
    assert entry.mtime_ns > 1_700_000_000_000_000_000
    assert not entry.archived
    head = await source.head(entry.key)
    assert (head.key, head.size, head.etag) == (entry.key, entry.size, entry.etag)


@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 16385, 5_000_001])
async def test_fu10_every_size_is_exact_and_zero_bytes_ask_nothing(origin, opened, listed, read, size):
    data = hashlib.shake_128(str(size).encode()).digest(size)
    origin.put("d/object", data)
    source = opened(origin.spec())
    (entry,) = await listed(source)
    assert entry.size == size
    assert await read(source, entry) == data
    assert await read(source, entry, size, size) == b""
    if size > 2:
        assert await read(source, entry, size - 1, size) == data[-1:]
        assert await read(source, entry, size // 3, size // 2) == data[size // 3 : size // 2]


async def test_the_uri_may_name_one_object(origin, opened, listed, read):
    origin.put("d/one.bin", b"one")
    origin.put("d/one.bin.old", b"other")
    source = opened(origin.spec("d/one.bin"))
    (entry,) = await listed(source)
    assert entry.key == origin.key("d/one.bin")
    assert entry.key + b"/" == source.prefix
    assert await read(source, entry) == b"one"


async def test_include_and_exclude_see_the_key_relative_to_the_uri(origin, opened, listed):
    for key in ("p/a.tar", "p/s/b.tar", "p/s/b.txt", "p/skip/c.tar"):
        origin.put(key, b"x")
    source = opened(origin.spec("p/", include=("**/*.tar",), exclude=("skip/**",)))
    assert await names(origin, listed, source) == [b"p/a.tar", b"p/s/b.tar"]


async def test_read_of_a_replaced_object_is_source_changed(origin, opened, listed, read):
    origin.put("object", b"old bytes")
    source = opened(origin.spec())
    (entry,) = await listed(source)
    origin.put("object", b"new bytes")
    with pytest.raises(SourceError) as failed:
        await read(source, entry)
    assert failed.value.reason == Reason.SourceChanged
    assert not failed.value.retryable


async def test_read_of_a_deleted_object_is_source_changed(origin, opened, listed, read):
    origin.put("object", b"old bytes")
    source = opened(origin.spec())
    (entry,) = await listed(source)
    origin.delete("object")
    with pytest.raises(SourceError) as failed:
        await read(source, entry, 2, 5)
    assert failed.value.reason == Reason.SourceChanged


async def test_head_of_nothing_is_source_not_found(origin, opened):
    origin.put("there", b"x")
    with pytest.raises(SourceError) as failed:
        await opened(origin.spec()).head(origin.key("not-there"))
    assert failed.value.reason == Reason.SourceNotFound
    assert "not-there" in failed.value.place


async def test_an_unknown_option_is_refused_with_what_is_accepted(origin, opened):
    with pytest.raises(SourceError) as failed:
        opened(origin.spec(options=(("verbose", "true"),)))
    assert failed.value.reason == Reason.InvalidValue
    assert "verbose" in failed.value.message
    assert failed.value.next_step


ODD = [
    "a b",
    "a+b",
    "100%",
    "%2F",
    "folder#1#/f",
    "q?x=1",
    "u\u0308",
    "\u00fc",
    "A/x",
    "a/X",
    "new\nline",
    "tab\t",
    "&<>'\"",
    "~*!",
]


async def test_fu04_odd_names_are_listed_byte_for_byte_and_read(origin, opened, listed, read):
    for key in ODD:
        origin.put(f"odd/{key}", key.encode())
    source = opened(origin.spec("odd/"))
    found = await listed(source)
    assert sorted(entry.key for entry in found) == sorted(origin.key(f"odd/{key}") for key in ODD)
    start = len(origin.key("odd/x")) - 1
    for entry in found:
        assert await read(source, entry) == entry.key[start:]
        assert await source.head(entry.key) == entry


async def test_fu06_more_than_one_page_in_one_folder(origin, opened, listed):
    wanted = {f"flat/{number:05}" for number in range(2001)} | {"flat", "flat-not"} - {"flat"}
    for key in wanted:
        origin.put(key, b"")
    source = opened(origin.spec("flat/"))
    found = await listed(source)
    assert len(found) == 2001
    assert len({entry.key for entry in found}) == 2001


async def test_fu06_folders_are_listed_beside_each_other_and_no_key_twice(origin, opened, listed):
    wanted = {f"{folder}/{number:04}" for folder in ("a", "b c", "d+e") for number in range(1005)} | {"top"}
    for key in wanted:
        origin.put(key, b"")
    found = [entry.key for entry in await listed(opened(origin.spec()))]
    assert sorted(found) == sorted(origin.key(key) for key in wanted)
