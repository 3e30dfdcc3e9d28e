"""One file by its url, from servers of every kind."""

from __future__ import annotations

import pytest

from servers.scenarios import ignores_range, redirects, refuses, shifted, truncated, with_headers
from stoker.api.reasons import Reason
from stoker.sources.base import SourceError, SourceSpec

DATA = bytes(range(256)) * 1024


@pytest.fixture
def spec(scripted_store):
    """The scripted store stands in for the host, as a mirror does."""

    def make(path="d/file.tar", **more):
        return SourceSpec("source", f"https://example.com/bucket/{path}", endpoint=scripted_store.endpoint, **more)

    return make


async def test_one_file_is_listed_and_read(scripted_store, spec, opened, listed, read):
    scripted_store.put("d/a b.tar", DATA)
    source = opened(spec("d/a%20b.tar"))
    (entry,) = await listed(source)
    assert (entry.key, entry.size) == (b"bucket/d/a b.tar", len(DATA))
    assert entry.key + b"/" == source.prefix
    assert await read(source, entry) == DATA
    assert await read(source, entry, 10, 20) == DATA[10:20]
    assert "if-match" in scripted_store.of("d/a b.tar", "GET")[0].headers


@pytest.mark.parametrize("status", [403, 405, 501])
async def test_fu20_head_refused_asks_for_one_byte(scripted_store, spec, opened, listed, status):
    scripted_store.put("d/file.tar", DATA)
    scripted_store.on("d/file.tar", refuses(status), times=1)
    (entry,) = await listed(opened(spec()))
    assert entry.size == len(DATA)
    assert scripted_store.of("d/file.tar", "GET")[0].headers["range"] == "bytes=0-0"


async def test_fu20_head_refused_for_an_empty_file(scripted_store, spec, opened, listed, read):
    scripted_store.put("d/file.tar", b"")
    scripted_store.on("d/file.tar", refuses(405), times=1)
    source = opened(spec())
    (entry,) = await listed(source)
    assert entry.size == 0
    assert await read(source, entry) == b""


async def test_fu20_a_small_file_is_cut_out_of_the_whole(scripted_store, spec, opened, listed, read):
    scripted_store.put("d/file.tar", DATA)
    scripted_store.on("d/file.tar", with_headers(), times=1)
    scripted_store.on("d/file.tar", ignores_range(scripted_store))
    source = opened(spec())
    (entry,) = await listed(source)
    assert await read(source, entry, 5000, 90_000) == DATA[5000:90_000]


async def test_fu20_a_large_file_without_ranges_is_refused_and_asked_once(scripted_store, spec, opened, listed, read):
    scripted_store.put("d/file.tar", b"x" * (9 << 20))
    scripted_store.on("d/file.tar", with_headers(), times=1)
    scripted_store.on("d/file.tar", ignores_range(scripted_store))
    source = opened(spec())
    (entry,) = await listed(source)
    for _ in range(2):
        with pytest.raises(SourceError) as failed:
            await read(source, entry, 4194304, 4194404)
        assert failed.value.reason == Reason.RangeNotSupported
    assert scripted_store.count("d/file.tar", "GET") == 1


@pytest.mark.parametrize("scenario", [shifted(1), truncated(50), truncated(50, reset=True)])
async def test_fu18_fu20_a_wrong_part_is_never_taken(scripted_store, spec, opened, listed, read, scenario):
    scripted_store.put("d/file.tar", DATA)
    source = opened(spec())
    (entry,) = await listed(source)
    scripted_store.on("d/file.tar", scenario)
    with pytest.raises(SourceError) as failed:
        await read(source, entry, 100, 300)
    assert failed.value.reason == Reason.CorruptResponse


async def test_weak_or_missing_etags_are_compared_and_never_sent(scripted_store, spec, opened, listed, read):
    for etag in ('W/"1"', ""):
        scripted_store.put("d/file.tar", DATA, etag=etag)
        source = opened(spec())
        (entry,) = await listed(source)
        assert entry.etag == etag
        assert await read(source, entry, 0, 5) == DATA[:5]
        headers = scripted_store.of("d/file.tar", "GET")[-1].headers
        assert "if-match" not in headers
        assert headers["if-unmodified-since"] == "Fri, 02 Jan 2026 03:04:05 GMT"


async def test_redirects_are_followed_with_the_conditions_and_bounded(scripted_store, spec, opened, listed, read):
    scripted_store.put("real", DATA)
    scripted_store.on("d/file.tar", redirects(scripted_store.url("real")))
    source = opened(spec())
    (entry,) = await listed(source)
    assert await read(source, entry, 7, 9) == DATA[7:9]
    assert scripted_store.of("real", "GET")[0].headers["range"] == "bytes=7-8"
    scripted_store.on("loop", redirects("loop"))
    with pytest.raises(SourceError) as failed:
        await listed(opened(spec("loop")))
    assert "redirects" in failed.value.message


async def test_the_query_is_sent_and_never_shown(scripted_store, spec, opened, listed):
    scripted_store.put("d/file.tar", DATA)
    source = opened(spec("d/file.tar?sig=topsecret"))
    (entry,) = await listed(source)
    assert scripted_store.requests[0].query == {"sig": b"topsecret"}
    assert b"topsecret" not in entry.key
    assert "topsecret" not in source.origin
    assert source.origin != opened(spec("d/file.tar?sig=other")).origin
    with pytest.raises(SourceError) as failed:
        await listed(opened(spec("none?sig=topsecret")))
    assert "topsecret" not in failed.value.line()


REFUSALS = [
    (404, Reason.SourceNotFound, False),
    (403, Reason.AccessDenied, False),
    (429, Reason.Throttled, True),
    (503, Reason.Throttled, True),
    (500, Reason.SourceUnavailable, True),
]


@pytest.mark.parametrize(("status", "reason", "retryable"), REFUSALS)
async def test_refusals_are_told_apart(scripted_store, spec, opened, listed, status, reason, retryable):
    scripted_store.on("d/file.tar", refuses(status, retry_after="7"))
    with pytest.raises(SourceError) as failed:
        await opened(spec()).head(b"bucket/d/file.tar")
    assert (failed.value.reason, failed.value.retryable) == (reason, retryable)
    assert failed.value.retry_after_s == 7


async def test_fu22_a_listing_outlives_a_short_fault(scripted_store, spec, opened, listed):
    scripted_store.put("d/file.tar", DATA)
    scripted_store.on("d/file.tar", refuses(500), times=1)
    scripted_store.on("d/file.tar", refuses(429, retry_after="0.1"), times=1)
    assert len(await listed(opened(spec()))) == 1
