"""What reads wait for, and what is named to change: a table of samples and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.node.whyslow import COUNTED, Mounted, Part, Sample, analyse

S = 1_000_000


def sample(reader_s: float = 10, waited_s: float = 8, busy: float = 0, **counts: int) -> Sample:
    """Ten seconds of one reader, who waited for eight of them."""
    grown = {**dict.fromkeys(COUNTED, 0), "hits": 10, "hit_bytes": 1000, **counts}
    return Sample(0, 10, reader_s, waited_s, waited_s, busy, 1, grown)


STORE, NETWORK = {"wait_store_us": 8 * S}, {"wait_network_us": 8 * S}
FETCHED = {"source_requests": 100, "source_bytes": 1000}

VERDICTS: list[tuple[str, dict[str, Any], Mounted, str, str]] = [
    ("random reads of a slow store", {**STORE, **FETCHED}, Mounted(), "store", "preload"),
    ("in order", {**STORE, **FETCHED, "ahead_bytes": 900}, Mounted(), "store", "mount.readAhead.max"),
    ("no read-ahead", {**STORE, **FETCHED}, Mounted(read_ahead_max=0), "store", "mount.readAhead.max"),
    ("a slow link", {**NETWORK, **FETCHED}, Mounted(), "network", "preload"),
    ("a small cache", {**NETWORK, **FETCHED, "again_bytes": 300}, Mounted(), "network", "cache.quota"),
    ("a little again", {**NETWORK, **FETCHED, "again_bytes": 100}, Mounted(), "network", "preload"),
    ("nothing kept", {**STORE, **FETCHED}, Mounted(policy="Bypass"), "store", "cache.policy"),
    ("refusals", {**STORE, **FETCHED, "source_errors": 20}, Mounted(), "store", "mount.readAhead.threads"),
    ("a queue", {"wait_queue_us": 8 * S, **FETCHED}, Mounted(), "queue", "mount.readAhead.threads"),
    ("a slow cache disk", {"disk_us": 8 * S}, Mounted(), "disk", "STOKER_CACHE_DIR"),
    ("writes to it", {"wait_disk_us": 8 * S, **FETCHED}, Mounted(), "disk", "STOKER_CACHE_DIR"),
    ("our own work", {}, Mounted(), "fuse", "mount.passthrough"),
    ("with passthrough", {}, Mounted(passthrough=True), "fuse", "larger reads"),
    ("all workers busy", {"waited_s": 0, "busy": 0.9}, Mounted(), "fuse", "STOKER_FUSE_WORKERS"),
    ("a slow reader", {"waited_s": 1}, Mounted(), "application", ""),
]


@pytest.mark.parametrize(("what", "counts", "mounted", "limit", "change"), VERDICTS, ids=[row[0] for row in VERDICTS])
def test_verdicts(what: str, counts: dict[str, Any], mounted: Mounted, limit: str, change: str) -> None:
    verdict = analyse([sample(**counts)], mounted).verdict
    assert (verdict.limit, verdict.change) == (limit, change)
    assert verdict.text.endswith(".")


@pytest.mark.parametrize("counts", [row[1] for row in VERDICTS], ids=[row[0] for row in VERDICTS])
def test_parts_are_the_time_of_the_readers(counts: dict[str, Any]) -> None:
    analysis = analyse([sample(**counts), sample(**counts)], Mounted())
    assert sum(analysis.seconds.values()) == pytest.approx(20)
    assert min(analysis.seconds.values()) >= 0
    shares = [part["percent"] for part in analysis.to_json()["parts"].values()]
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_requests_side_by_side_share_the_time_that_their_reader_waited() -> None:
    """Two requests, both 8 s on their way; the reader waited 8 s, not 16."""
    both = Sample(0, 10, 10, 8, 16, 0, 1, {**dict.fromkeys(COUNTED, 0), "wait_store_us": 12 * S, "disk_us": 4 * S})
    seconds = analyse([both], Mounted()).seconds
    assert {part: round(s, 3) for part, s in seconds.items() if s} == {
        Part.Store: 6,
        Part.Disk: 2,
        Part.Application: 2,
    }


def test_what_is_named_is_explained() -> None:
    root = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").exists())
    page = (root / "docs/WATCHING.md").read_text()
    for word in {change for *_, change in VERDICTS if change} | {str(part) for part in Part}:
        assert f"`{word}`" in page, word


def test_nothing_was_read() -> None:
    analysis = analyse([], Mounted())
    assert analysis.verdict.limit == ""
    assert "page cache" in analysis.verdict.text
    assert {part["percent"] for part in analysis.to_json()["parts"].values()} == {0.0}


def test_figures() -> None:
    counts = {"misses": 2, "miss_us": 3000, "status_2xx": 4, "first_byte_us": 2000, "body_us": 2 * S, **FETCHED}
    figures = analyse([sample(**counts)], Mounted()).to_json()["figures"]
    assert figures["meanMissMs"] == 1.5
    assert figures["firstByteMs"] == 0.5
    assert figures["bytesPerSecondOfARequest"] == 500
    assert figures["sourceBytesPerSecond"] == 100
    assert (figures["reads"], figures["readBytesPerSecond"]) == (12, 100)
