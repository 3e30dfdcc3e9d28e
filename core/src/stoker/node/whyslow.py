"""Why reads of a data set take as long as they do: from samples to shares, figures and one thing to change. Pure.

Reader time is the time of all readers together. A part of it nobody waited: that is the readers' own pace. The rest
was waiting, divided by what the waiting requests waited for (docs/WATCHING.md explains it to users).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict

from stoker.api.base import Model

COUNTED = (
    *("hits", "hit_bytes", "hit_us", "misses", "miss_bytes", "miss_us", "errors", "disk_us", "served_us"),
    *("source_bytes", "source_requests", "source_errors", "source_retries", "ahead_bytes", "again_bytes"),
    *("wait_queue_us", "wait_store_us", "wait_network_us", "wait_disk_us", "first_byte_us", "body_us"),
    *("status_2xx", "status_3xx", "status_4xx", "status_5xx"),
)
"""Counts that a sample holds the growth of."""

_AGAIN_SHARE = 0.2
_FAILED_SHARE = 0.1
_IN_ORDER_SHARE = 0.5
_SATURATED = 0.5


class Part(StrEnum):
    """What reader time goes to."""

    Store = "store"
    Network = "network"
    Queue = "queue"
    Disk = "disk"
    Fuse = "fuse"
    Application = "application"


@dataclass(frozen=True, slots=True)
class Sample:
    """Some seconds of one data set. `reader_s`: time of its readers, `waited_s`: in which they waited for something;
    `requests_s`: the same of each request for itself. `busy`: share of the time in which all workers worked.
    `counts`: what was counted meanwhile (`COUNTED`)."""

    start: float
    stop: float
    reader_s: float
    waited_s: float
    requests_s: float
    busy: float
    readers: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Mounted:
    """What a data set's mount is set to. `passthrough`: whether the kernel may read complete files by itself."""

    read_ahead_max: int = 64 << 20
    read_ahead_threads: int = 0
    policy: str = "Cache"
    passthrough: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`limit`: the largest part, empty when nothing was read. `change`: the one setting or action."""

    limit: str
    change: str
    text: str


class Figures(Model):
    """Absolute figures of the same time. Rates are per second of the window."""

    model_config = ConfigDict(populate_by_name=True)

    reader_seconds: float
    most_readers: int
    reads: int
    read_bytes: int
    read_bytes_per_second: float
    hit_reads: int
    mean_hit_ms: float
    mean_miss_ms: float
    source_requests: int
    source_failures: int
    source_bytes: int
    source_bytes_per_second: float
    first_byte_ms: float
    bytes_per_second_of_a_request: float
    fetched_ahead_bytes: int
    fetched_again_bytes: int
    read_errors: int
    workers_busy_percent: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """`seconds`: of reader time, by part."""

    window_s: float
    seconds: Mapping[Part, float]
    figures: Figures
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Names as the admin API has them; percents add up to 100, or are all 0."""
        whole = sum(self.seconds.values())
        return {
            "windowSeconds": round(self.window_s, 1),
            "parts": {
                str(part): {"percent": round(100 * s / whole, 1) if whole else 0.0, "seconds": round(s, 3)}
                for part, s in self.seconds.items()
            },
            "figures": self.figures.model_dump(by_alias=True),
            "verdict": asdict(self.verdict),
        }


def analyse(samples: Sequence[Sample], mounted: Mounted) -> Analysis:
    """The whole answer."""
    counts = {name: sum(sample.counts[name] for sample in samples) for name in COUNTED}
    window_s = samples[-1].stop - samples[0].start if samples else 0.0
    seconds = _divide(samples, counts)
    figures = _figures(samples, counts, window_s)
    return Analysis(window_s, seconds, figures, _judge(seconds, counts, figures, mounted))


def _divide(samples: Sequence[Sample], counts: Mapping[str, int]) -> dict[Part, float]:
    waited = sum(sample.waited_s for sample in samples)
    known = {
        Part.Store: counts["wait_store_us"] / 1e6,
        Part.Network: counts["wait_network_us"] / 1e6,
        Part.Queue: counts["wait_queue_us"] / 1e6,
        Part.Disk: (counts["wait_disk_us"] + counts["disk_us"]) / 1e6,
    }
    requests = sum(sample.requests_s for sample in samples)
    # Requests of one reader overlap, so they waited longer than it did: each part shrinks by the same factor.
    whole = max(requests, sum(known.values()))
    scale = waited / whole if whole else 0.0
    seconds = {part: spent * scale for part, spent in known.items()}
    served = counts["served_us"] / 1e6
    pace = [max(0.0, s.reader_s - s.waited_s - s.counts["served_us"] / 1e6) for s in samples]
    # While every worker works, a request may wait in the kernel where nobody sees it.
    hidden = sum(spent * sample.busy for spent, sample in zip(pace, samples, strict=True))
    seconds[Part.Fuse] = (whole - sum(known.values())) * scale + served + hidden
    seconds[Part.Application] = sum(pace) - hidden
    return seconds


def _figures(samples: Sequence[Sample], counts: Mapping[str, int], window_s: float) -> Figures:
    nbytes = counts["hit_bytes"] + counts["miss_bytes"]
    answers = sum(counts[f"status_{kind}xx"] for kind in range(2, 6))
    return Figures(
        reader_seconds=round(sum(sample.reader_s for sample in samples), 3),
        most_readers=max((sample.readers for sample in samples), default=0),
        reads=counts["hits"] + counts["misses"],
        read_bytes=nbytes,
        read_bytes_per_second=_ratio(nbytes, window_s),
        hit_reads=counts["hits"],
        mean_hit_ms=_ratio(counts["hit_us"] / 1e3, counts["hits"]),
        mean_miss_ms=_ratio(counts["miss_us"] / 1e3, counts["misses"]),
        source_requests=counts["source_requests"],
        source_failures=counts["source_errors"],
        source_bytes=counts["source_bytes"],
        source_bytes_per_second=_ratio(counts["source_bytes"], window_s),
        first_byte_ms=_ratio(counts["first_byte_us"] / 1e3, answers),
        bytes_per_second_of_a_request=_ratio(counts["source_bytes"], counts["body_us"] / 1e6),
        fetched_ahead_bytes=counts["ahead_bytes"],
        fetched_again_bytes=counts["again_bytes"],
        read_errors=counts["errors"],
        workers_busy_percent=round(100 * max((sample.busy for sample in samples), default=0.0), 1),
    )


def _judge(seconds: Mapping[Part, float], counts: Mapping[str, int], figures: Figures, mounted: Mounted) -> Verdict:
    if not figures.reads and not figures.read_errors and not sum(seconds.values()):
        text = "Nothing was read through Stoker: nobody reads, or the kernel answers from its own page cache."
        return Verdict("", "", text)
    limit = max(seconds, key=lambda part: seconds[part])
    if limit is Part.Application:
        text = (
            "The readers are the limit: most of the time none of them waited. Nothing of Stoker would make it faster."
        )
        return Verdict(limit, "", text)
    if limit is Part.Disk:
        text = "Readers wait for the cache's disk: put the cache on a faster disk, or on more of them."
        return Verdict(limit, "STOKER_CACHE_DIR", text)
    if limit is Part.Fuse:
        return _own(figures, mounted)
    return _source(limit, counts, figures, mounted)


def _own(figures: Figures, mounted: Mounted) -> Verdict:
    if figures.workers_busy_percent > 100 * _SATURATED:
        text = "All FUSE workers are busy: run more of them, if the machine has cores to spare."
        return Verdict(Part.Fuse, "STOKER_FUSE_WORKERS", text)
    if not mounted.passthrough:
        text = "The requests themselves are the limit: let the kernel read complete files straight from the cache."
        return Verdict(Part.Fuse, "mount.passthrough", text)
    text = "The requests themselves are the limit: read larger pieces, or pack small files into larger ones."
    return Verdict(Part.Fuse, "larger reads", text)


def _source(limit: Part, counts: Mapping[str, int], figures: Figures, mounted: Mounted) -> Verdict:
    """Readers wait for bytes that are not in the cache."""
    if mounted.policy == "Bypass":
        text = "`cache.policy: Bypass` keeps nothing: each read comes from the source again. Let the cache keep it."
        return Verdict(limit, "cache.policy", text)
    if counts["again_bytes"] > _AGAIN_SHARE * max(1, counts["source_bytes"]):
        text = "The cache is too small for what is read: objects were evicted and fetched again. Give it more room."
        return Verdict(limit, "cache.quota", text)
    if counts["source_errors"] > _FAILED_SHARE * max(1, counts["source_requests"]):
        text = "The source fails or refuses requests, and they are made again: ask it for less at once."
        return Verdict(limit, "mount.readAhead.threads", text)
    if limit is Part.Queue:
        text = "Requests wait for a turn: allow more of them at once."
        return Verdict(limit, "mount.readAhead.threads", text)
    in_order = counts["ahead_bytes"] > _IN_ORDER_SHARE * max(1, counts["source_bytes"])
    if limit is Part.Store and (in_order or mounted.read_ahead_max == 0):
        text = "Each request waits long for its first byte: fetch further ahead of the reader."
        return Verdict(limit, "mount.readAhead.max", text)
    if limit is Part.Store:
        text = "Each read waits for a request of its own, in no order that could be foreseen: load the data first."
        return Verdict(limit, "preload", text)
    rate = f"{figures.source_bytes_per_second / 1e6:,.1f} MB/s"
    text = f"The bytes come slowly ({rate} in all): load the data before it is needed."
    return Verdict(limit, "preload", text)


def _ratio(value: float, by: float) -> float:
    return round(value / by, 3) if by else 0.0
