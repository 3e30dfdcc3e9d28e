"""What a misbehaving S3 store may not achieve: a wrong byte, a short listing, a loop, a wrong reason."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from servers.scenarios import (
    ignores_range,
    in_pages,
    long_body,
    never_answers,
    only_in_region,
    refuses,
    replaced_before,
    shifted,
    short_body,
    slow_down,
    stalls,
    truncated,
    with_headers,
    zipped,
)
from servers.scripted_store import Stored, listing, listing_body
from stoker.api.reasons import Reason
from stoker.sources.base import Credentials, ObjectVersion, SourceError

DATA = bytes(range(256)) * 4096
ODD_KEY = "a//b"  # read by our own GET, the other keys by obstore


@pytest.fixture(params=["plain", ODD_KEY])
def key(request):
    return request.param


async def failure(source, read, listed, key, start=1000, stop=200_000):
    """The error of a read of the listed object."""
    (entry,) = [e for e in await listed(source) if e.key == key.encode()]
    with pytest.raises(SourceError) as failed:
        await read(source, entry, start, stop)
    return failed.value


def _wrong_bodies(store):
    return {
        "fin": truncated(100_000),
        "rst": truncated(100_000, reset=True),
        "cut before the body": truncated(0),
        "short": short_body(),
        "long": long_body(),
        "200": ignores_range(store),
        "beside": shifted(16),
        "no range": with_headers(content_range=None),
        "wrong total": with_headers(content_range=f"bytes 1000-199999/{len(DATA) - 1}"),
    }


@pytest.mark.parametrize("fault", list(_wrong_bodies(None)))
async def test_fu18_fu20_wrong_bodies_are_never_taken(scripted, opened, read, listed, key, fault):
    scripted.put(key, DATA)
    scripted.store.on(key, _wrong_bodies(scripted.store)[fault], times=1)
    source = opened(scripted.spec())
    error = await failure(source, read, listed, key)
    if fault == "wrong total":
        assert error.reason == Reason.SourceChanged
    else:
        assert error.reason == Reason.CorruptResponse
        assert error.retryable
    assert scripted.store.count(key) == 1
    (entry,) = await listed(source)
    assert await read(source, entry, 1000, 200_000) == DATA[1000:200_000]


async def test_200_is_right_when_everything_was_asked_for(scripted, opened, read, listed):
    scripted.put(ODD_KEY, DATA)
    scripted.store.on(ODD_KEY, ignores_range(scripted.store))
    source = opened(scripted.spec())
    (entry,) = await listed(source)
    assert await read(source, entry) == DATA


async def test_an_object_replaced_behind_if_match_is_found_by_its_etag(scripted, opened, read, listed, key):
    scripted.put(key, DATA)
    scripted.store.on(key, replaced_before(scripted.store, DATA[::-1]))
    error = await failure(opened(scripted.spec()), read, listed, key)
    assert error.reason == Reason.SourceChanged


@pytest.mark.parametrize(
    ("etag", "sent"),
    [('"0123456789abcdef0123456789abcdef"', True), ('"d41d8cd98f-24"', True), ('W/"weak"', False), ("", False)],
)
async def test_fu21_an_etag_is_a_version_and_nothing_else(scripted, opened, read, listed, key, etag, sent):
    scripted.store.put(key, DATA, etag=etag)
    source = opened(scripted.spec())
    (entry,) = await listed(source)
    assert entry.etag == (etag if etag.startswith("W/") else etag.strip('"'))
    assert await read(source, entry) == DATA
    (request,) = scripted.store.of(key)
    assert request.headers.get("if-match") == (etag if sent else None)


async def test_fu09_stored_bytes_stay_as_stored(scripted, opened, read, listed, key):
    stored = b"\x1f\x8b\x08\x00" + DATA[:440]
    scripted.store.put(key, stored, headers={"Content-Encoding": "gzip"})
    source = opened(scripted.spec())
    (entry,) = await listed(source)
    assert entry.size == 444
    assert await read(source, entry) == stored
    assert await read(source, entry, 100, 444) == stored[100:]
    assert "gzip" not in scripted.store.of(key)[0].headers.get("accept-encoding", "")


@pytest.mark.parametrize("length", [{}, {"content_length": None}], ids=["length", "no length"])
async def test_fu09_of_a_body_that_was_compressed_on_the_way_no_byte_comes(scripted, opened, listed, key, length):
    """Its headers are those of the right bytes: only its end would show that these are others."""
    data = random.Random(1).randbytes(300_001)
    scripted.put(key, data)
    scripted.store.on(key, lambda asked, right: replace(zipped()(asked, right), end="close").having(**length))
    source = opened(scripted.spec())
    (entry,) = [e for e in await listed(source) if e.key == key.encode()]
    version = ObjectVersion(entry.key, entry.size, entry.etag, entry.mtime_ns)
    pieces = source.read(version, 0, entry.size, 64 << 10)
    with pytest.raises(SourceError) as failed:
        await anext(pieces)
    assert failed.value.reason is Reason.CorruptResponse


async def test_fu10_nothing_is_asked_for_nothing(scripted, opened, read, listed, key):
    scripted.put(key, b"")
    source = opened(scripted.spec())
    (entry,) = await listed(source)
    assert await read(source, entry) == b""
    assert scripted.store.count(key) == 0


REFUSALS = [
    (403, "AccessDenied", Reason.AccessDenied, False),
    (403, "ExpiredToken", Reason.CredentialsExpired, False),
    (400, "ExpiredToken", Reason.CredentialsExpired, False),
    (403, "RequestTimeTooSkewed", Reason.AccessDenied, False),
    (403, "InvalidAccessKeyId", Reason.AccessDenied, False),
    (403, "InvalidObjectState", Reason.Archived, False),
    (404, "NoSuchKey", Reason.SourceChanged, False),
    (404, "NoSuchBucket", Reason.BucketNotFound, False),
    (404, "", Reason.SourceUnavailable, True),
    (412, "PreconditionFailed", Reason.SourceChanged, False),
    (429, "", Reason.Throttled, True),
    (503, "SlowDown", Reason.Throttled, True),
    (500, "InternalError", Reason.SourceUnavailable, True),
]


@pytest.mark.parametrize(("status", "code", "reason", "retryable"), REFUSALS)
async def test_id11_ca07_refusals_are_told_apart(scripted, opened, read, listed, key, status, code, reason, retryable):
    scripted.put(key, DATA)
    scripted.store.on(key, refuses(status, code))
    error = await failure(opened(scripted.spec()), read, listed, key)
    assert (error.reason, error.retryable) == (reason, retryable)
    assert "bucket" in error.place
    assert "admin-secret" not in error.line()
    assert scripted.store.count(key) == 1


async def test_id11_head_without_a_body_asks_again_by_get(scripted, opened):
    scripted.put("k", DATA)
    scripted.store.on("k", refuses(403), times=1)
    source = opened(scripted.spec())
    assert (await source.head(b"k")).size == len(DATA)
    scripted.store.on("k", refuses(403), times=1)
    scripted.store.on("k", refuses(403, "RequestTimeTooSkewed"), times=1)
    with pytest.raises(SourceError) as failed:
        await source.head(b"k")
    assert "clock" in failed.value.next_step


async def test_ca07_a_store_that_is_down_has_no_missing_files(scripted, opened):
    source = opened(scripted.spec())
    for status in (500, 502, 503):
        scripted.store.on("k", refuses(status), times=1)
        with pytest.raises(SourceError) as failed:
            await source.head(b"k")
        assert failed.value.retryable
    dead = opened(scripted.spec(endpoint="http://127.0.0.1:1"))
    with pytest.raises(SourceError) as failed:
        await dead.head(b"k")
    assert failed.value.reason == Reason.SourceUnavailable


async def test_fu22_a_listing_outlives_throttling_and_waits_as_asked(scripted, opened, listed):
    scripted.put("k", b"x")
    scripted.store.on_list(slow_down("1"), times=1)
    scripted.store.on_list(refuses(500, "InternalError"), times=1)
    began = time.monotonic()
    assert len(await listed(opened(scripted.spec()))) == 1
    assert time.monotonic() - began >= 1
    assert scripted.store.count(None) == 3


async def test_fu22_denial_is_not_tried_again(scripted, opened, listed):
    scripted.store.on_list(refuses(403, "AccessDenied"))
    with pytest.raises(SourceError) as failed:
        await listed(opened(scripted.spec()))
    assert failed.value.reason == Reason.AccessDenied
    assert scripted.store.count(None) == 1


async def test_an_anonymous_denial_asks_for_credentials(scripted, opened, listed):
    scripted.store.on_list(refuses(403, "AccessDenied"))
    with pytest.raises(SourceError) as failed:
        await listed(opened(scripted.spec(credentials=Credentials())))
    assert failed.value.reason == Reason.CredentialsMissing
    assert "authorization" not in scripted.store.of(None)[0].headers


@pytest.mark.parametrize("status", [301, 400])
async def test_cl02_the_region_that_the_store_names_is_followed_and_remembered(scripted, opened, listed, read, status):
    scripted.put("k", DATA)
    scripted.store.on_list(only_in_region("eu-west-7", status))
    for name in ("k", ""):
        scripted.store.on(name, only_in_region("eu-west-7", status))
    source = opened(scripted.spec())
    (entry,) = await listed(source)
    assert await read(source, entry) == DATA
    assert scripted.store.count(None) == 2
    # Another process only reads, and finds the region too.
    reader = opened(scripted.spec())
    assert await read(reader, entry) == DATA
    assert await read(reader, entry, 5, 9) == DATA[5:9]


async def test_cl02_one_object_may_be_read_without_the_right_to_list(scripted, opened, listed):
    scripted.put("one", b"x")
    scripted.store.on_list(refuses(403, "AccessDenied"))
    assert [e.key for e in await listed(opened(scripted.spec("one")))] == [b"one"]
    with pytest.raises(SourceError) as failed:
        await listed(opened(scripted.spec("two")))
    assert failed.value.reason == Reason.AccessDenied


# Listings


def _stored(*keys: bytes) -> list[tuple[bytes, Stored]]:
    from datetime import UTC, datetime

    return [(key, Stored(b"x", '"e"', datetime(2026, 1, 1, tzinfo=UTC))) for key in keys]


async def test_fu08_empty_pages_do_not_end_a_listing(scripted, opened, listed):
    pages = [listing([], token="1"), listing([], token="2"), listing(_stored(b"a", b"b", b"c"))]
    scripted.store.on_list(in_pages(*pages))
    assert [entry.key for entry in await listed(opened(scripted.spec()))] == [b"a", b"b", b"c"]


async def test_fu08_a_repeated_token_is_an_error_and_no_loop(scripted, opened, listed):
    scripted.store.on_list(in_pages(listing([], token="1"), listing([], token="1")))
    with pytest.raises(SourceError) as failed:
        await listed(opened(scripted.spec()))
    assert failed.value.reason == Reason.CorruptResponse
    assert scripted.store.count(None) <= 3


async def test_a_truncated_page_without_a_token_is_no_end(scripted, opened, listed):
    page = listing_body("<IsTruncated>true</IsTruncated>")
    scripted.store.on_list(in_pages(page))
    with pytest.raises(SourceError) as failed:
        await listed(opened(scripted.spec()))
    assert failed.value.reason == Reason.CorruptResponse


async def test_fu18_a_cut_page_is_asked_for_again(scripted, opened, listed):
    for number in range(50):
        scripted.put(f"k{number}", b"")
    scripted.store.on_list(truncated(2000), times=1)
    scripted.store.on_list(short_body(200), times=1)
    assert len(await listed(opened(scripted.spec()))) == 50


async def test_fu06_pages_that_repeat_keys_give_each_once(scripted, opened, listed):
    pages = [listing(_stored(b"a", b"b"), token="1"), listing(_stored(b"b", b"c", b"c"))]
    scripted.store.on_list(in_pages(*pages))
    assert [entry.key for entry in await listed(opened(scripted.spec()))] == [b"a", b"b", b"c"]


async def test_fu06_prefixes_and_objects_on_pages_of_their_own_in_no_order(scripted, opened, listed):
    flat = [f"p/{number:04}".encode() for number in range(1000)]

    def answer(request, right):
        prefix, token = request.query["prefix"], request.query.get("continuation-token", b"")
        if prefix == b"" and "delimiter" not in request.query:
            return listing(_stored(*flat[::-1]), token="more") if not token else listing(_stored(b"q/1", b"0"))
        if prefix == b"":
            return listing([], [b"q/", b"p/"], token="more") if not token else listing(_stored(b"z", b"0"))
        if prefix == b"p/":
            return listing(_stored(*flat, b"p/"))
        return listing(_stored(b"q/1"))

    scripted.store.on_list(answer)
    found = [entry.key for entry in await listed(opened(scripted.spec()))]
    assert sorted(found) == sorted([*flat, b"p/", b"q/1", b"z", b"0"])


async def test_fu02_fu04_no_key_breaks_the_others(scripted, opened, listed, read):
    keys = [b"a//b", b"a/c", b"/lead", b"x/./y", b"x/../z", b"t/ok", b"t/", bytes(range(1, 32)), b"\xff\xfe", b"\x7f"]
    for key in keys:
        scripted.store.put(key, key)
    source = opened(scripted.spec())
    found = await listed(source)
    assert sorted(entry.key for entry in found) == sorted(keys)
    for entry in found:
        assert await read(source, entry) == entry.key


async def test_fu04_a_store_without_the_encoding_is_read_all_the_same(scripted, opened, listed):
    inside = b"<IsTruncated>false</IsTruncated>" + b"".join(
        b"<Contents><Key>" + key + b"</Key><Size>1</Size></Contents>"
        for key in (b"a+b", b"100%", b"x&#x1;y", b"raw\x02\xff", b"&lt;&amp;&#228;")
    )
    scripted.store.on_list(in_pages(listing_body(inside)))
    found = {entry.key for entry in await listed(opened(scripted.spec()))}
    assert found == {b"a+b", b"100%", b"x\x01y", b"raw\x02\xff", "<&ä".encode()}


async def test_archived_objects_are_marked(scripted, opened, listed):
    for storage_class in ("GLACIER", "DEEP_ARCHIVE", "GLACIER_IR", "STANDARD"):
        scripted.store.put(storage_class, b"x", storage_class=storage_class)
    source = opened(scripted.spec())
    archived = {entry.key: entry.archived for entry in await listed(source)}
    assert archived == {b"GLACIER": True, b"DEEP_ARCHIVE": True, b"GLACIER_IR": False, b"STANDARD": False}
    assert (await source.head(b"GLACIER")).archived


async def test_an_unreachable_endpoint_fails_in_bounded_time(opened, listed, scripted):
    began = time.monotonic()
    with pytest.raises(SourceError) as failed:
        await listed(opened(scripted.spec(endpoint="http://127.0.0.1:1")))
    assert failed.value.reason == Reason.SourceUnavailable
    assert "127.0.0.1:1" in failed.value.message
    assert time.monotonic() - began < 20


async def test_a_store_that_never_answers_fails_in_bounded_time(scripted, opened, listed, monkeypatch):
    monkeypatch.setattr("stoker.sources.retry.UNREACHED_DEADLINE_S", 0.5)
    scripted.store.on_list(never_answers())
    began = time.monotonic()
    with pytest.raises(SourceError) as failed:
        await listed(opened(scripted.spec()))
    assert failed.value.reason == Reason.SourceUnavailable
    assert time.monotonic() - began < 5


async def test_a_body_that_stalls_is_unavailable_and_not_wrong(scripted, opened, listed, read, key, monkeypatch):
    for module in ("s3_reads", "http_client"):
        monkeypatch.setattr(f"stoker.sources.{module}.STALL_TIMEOUT_S", 0.5)
    scripted.put(key, DATA)
    scripted.store.on(key, stalls(1000))
    error = await failure(opened(scripted.spec()), read, listed, key)
    assert error.reason == Reason.SourceUnavailable
    assert error.retryable


async def test_a_listing_that_nobody_finishes_leaves_nothing_behind(scripted, opened):
    for number in range(3000):
        scripted.put(f"k{number}", b"")
    pages = opened(scripted.spec()).list()
    assert await anext(pages)
    await pages.aclose()


async def test_fu22_the_look_at_one_object_outlives_a_short_fault(scripted, opened, listed):
    scripted.put("one", b"x")
    scripted.store.on("one", refuses(500), times=1)
    assert [e.key for e in await listed(opened(scripted.spec("one")))] == [b"one"]
