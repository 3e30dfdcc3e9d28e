"""Each way in which a store misbehaves heals or ends in its documented reason, within its deadline; never a wrong byte
in an answer or in the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from rigs.fetch import FetchRig, View
from servers.scenarios import (
    ignores_range,
    long_body,
    never_answers,
    refuses,
    replaced_before,
    shifted,
    short_body,
    slow_down,
    stalls,
    truncated,
    with_headers,
)
from servers.scripted_store import Request, Response, Scenario, ScriptedStore
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.layout import PAGE
from stoker.fetch.protocol import FLAG_INLINE
from stoker.sources.base import Credentials, SourceSpec

KIB, MIB = 1 << 10, 1 << 20
DATA = hashlib.shake_128(b"data").digest(8 * MIB + 77)
QUICK = {"retries": 2, "request_timeout_s": 0.3}


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FetchRig]:
    async with FetchRig(str(tmp_path)) as rig:
        yield rig


def spec(store: ScriptedStore) -> SourceSpec:
    keys = Credentials("static", "key", "secret")
    return SourceSpec("bucket", "s3://bucket/", endpoint=store.endpoint, region="us-east-1", credentials=keys)


async def view_of(rig: FetchRig, store: ScriptedStore, data: bytes = DATA, **settings: object) -> View:
    store.put("a", data)
    return await rig.mount(spec(store), **{**QUICK, **settings})


HEALING: dict[str, Callable[[ScriptedStore], Scenario]] = {
    "clean FIN after 1 MiB": lambda _: truncated(MIB),
    "RST after 1 MiB": lambda _: truncated(MIB, reset=True),
    "one byte too few, announced": lambda _: short_body(),
    "one byte too many, announced": lambda _: long_body(),
    "200 for a range": ignores_range,
    "another range": lambda _: shifted(PAGE),
    "wrong Content-Range": lambda _: with_headers(content_range=f"bytes 0-9/{len(DATA)}"),
    "stalls after 100 KiB": lambda _: stalls(100 * KIB),
    "no answer": lambda _: never_answers(),
    "503": lambda _: refuses(503),
    "500 InternalError": lambda _: refuses(500, "InternalError"),
    "503 SlowDown": lambda _: slow_down(),
    "503 SlowDown, Retry-After": lambda _: slow_down("1"),
    "429": lambda _: refuses(429, "TooManyRequests"),
}


@pytest.mark.parametrize("fault", HEALING)
async def test_fu_18_fu_20_a_fault_that_passes_is_not_seen(
    rig: FetchRig, scripted_store: ScriptedStore, fault: str
) -> None:
    view = await view_of(rig, scripted_store)
    scripted_store.on("a", HEALING[fault](scripted_store), times=2)
    await asyncio.wait_for(view.load("a"), 15)
    assert await view.read_all("a") == DATA


def other_etag(_: Request, right: Response) -> Response:
    return replace(right, headers={**right.headers, "ETag": '"other"'})


PERMANENT: dict[str, tuple[Callable[[ScriptedStore], Scenario], Reason]] = {
    "200 for a range": (ignores_range, Reason.CorruptResponse),
    "another range": (lambda _: shifted(PAGE), Reason.CorruptResponse),
    "short": (lambda _: short_body(), Reason.CorruptResponse),
    "long": (lambda _: long_body(), Reason.CorruptResponse),
    "no answer": (lambda _: never_answers(), Reason.SourceUnavailable),
    "500": (lambda _: refuses(500), Reason.SourceUnavailable),
    "403": (lambda _: refuses(403, "AccessDenied"), Reason.AccessDenied),
    "404": (lambda _: refuses(404, "NoSuchKey"), Reason.SourceChanged),
    "412": (lambda _: refuses(412, "PreconditionFailed"), Reason.SourceChanged),
    "another etag": (lambda _: other_etag, Reason.SourceChanged),
}


@pytest.mark.parametrize("fault", PERMANENT)
async def test_ca_07_a_fault_that_stays_has_its_reason_and_leaves_no_wrong_byte(
    rig: FetchRig, scripted_store: ScriptedStore, fault: str
) -> None:
    view = await view_of(rig, scripted_store)
    scenario, reason = PERMANENT[fault]
    scripted_store.on("a", scenario(scripted_store))
    began = time.monotonic()
    with pytest.raises(StokerError) as failed:
        await view.read("a", MIB, 64 * KIB)
    assert failed.value.reason is reason
    assert time.monotonic() - began < view.spec.mount.deadline_s
    for page in range(MIB // PAGE, MIB // PAGE + 4):
        if view.cached("a", page, page + 1):
            assert await view.read("a", page * PAGE, PAGE) == DATA[page * PAGE : (page + 1) * PAGE]
    with pytest.raises(StokerError):
        await view.ask_data("a", MIB, 64 * KIB, FLAG_INLINE)


@pytest.mark.parametrize("fault", ["403", "404", "412"])
async def test_fu_22_what_no_retry_can_mend_is_asked_once(
    rig: FetchRig, scripted_store: ScriptedStore, fault: str
) -> None:
    view = await view_of(rig, scripted_store)
    scripted_store.on("a", PERMANENT[fault][0](scripted_store))
    for _ in range(5):
        with pytest.raises(StokerError):
            await view.read("a", 0, PAGE)
    assert scripted_store.count("a", "GET") == 1, "the failure is remembered for the kernel's second question"


async def test_fu_18_only_the_missing_rest_is_asked_after_a_break(rig: FetchRig, scripted_store: ScriptedStore) -> None:
    view = await view_of(rig, scripted_store, DATA[: 8 * MIB])
    scripted_store.on("a", truncated(7 * MIB), times=1)
    await view.load("a")
    first, second = (request.headers["range"] for request in scripted_store.of("a", "GET"))
    assert first == f"bytes=0-{8 * MIB - 1}"
    assert int(second.removeprefix("bytes=").partition("-")[0]) >= 4 * MIB
    assert all(request.headers.get("if-match") for request in scripted_store.of("a", "GET"))


async def test_a_store_that_breaks_off_again_and_again_is_read_to_the_end(
    rig: FetchRig, scripted_store: ScriptedStore
) -> None:
    view = await view_of(rig, scripted_store, DATA[: 8 * MIB])
    scripted_store.on("a", truncated(MIB), times=6)
    await view.load("a")
    starts = [int(request.headers["range"][6:].partition("-")[0]) for request in scripted_store.of("a", "GET")]
    assert starts == sorted(starts)
    assert starts[-1] >= 4 * MIB, "after the first break no more than a short piece is lost"


async def test_ca_01_a_replaced_object_is_all_old_or_an_error(rig: FetchRig, scripted_store: ScriptedStore) -> None:
    other = hashlib.shake_128(b"other").digest(len(DATA))
    view = await view_of(rig, scripted_store)
    assert await view.read("a", 0, MIB) == DATA[:MIB]
    scripted_store.on("a", replaced_before(scripted_store, other), times=1)
    with pytest.raises(StokerError) as failed:
        await view.read("a", 6 * MIB, MIB)
    assert failed.value.reason is Reason.SourceChanged
    assert await view.read("a", 0, MIB) == DATA[:MIB], "cached pages of the old version stay readable"


async def test_fu_22_thirty_percent_refusals_are_not_seen(rig: FetchRig, scripted_store: ScriptedStore) -> None:
    for number in range(60):
        scripted_store.put(f"f{number}", DATA[: 10_000 + number])
        if number % 10 < 3:
            scripted_store.on(f"f{number}", slow_down(), times=3)
    view = await rig.mount(spec(scripted_store), **QUICK)
    await asyncio.wait_for(asyncio.gather(*(view.load(f"f{number}") for number in range(60))), 30)
    assert view.cached("f0")
    assert view.counts()["source_retries"] >= 54


async def test_a_replica_serves_what_the_source_does_not(rig: FetchRig, scripted_store: ScriptedStore) -> None:
    scripted_store.put("main/a", DATA)
    scripted_store.put("copy/a", DATA)
    source = replace(spec(scripted_store), uri="s3://bucket/main/", replicas=("s3://bucket/copy/",))
    view = await rig.mount(source, **QUICK)
    scripted_store.on("main/a", refuses(500))
    assert await view.read("a", 100, 1000) == DATA[100:1100]
    before = scripted_store.count("main/a", "GET")
    assert await view.read("a", MIB, 1000) == DATA[MIB : MIB + 1000]
    assert scripted_store.count("main/a", "GET") == before, "the source is left alone for a while"
    assert not view.cached("a", 0, 1), "not cached under the source's name"
