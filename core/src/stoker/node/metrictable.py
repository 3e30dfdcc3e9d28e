"""The table of metrics: name, kind, unit, labels, meaning, and where each value comes from.

Labels are bounded: data sets by number, everything else by kind; never a path, a key or the name of a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stoker.cache.shares import Why
from stoker.fetch.counters import Latency, Node
from stoker.node.metricvalues import (
    PHASES,
    STATUSES,
    TIER_STATES,
    US,
    Facts,
    Values,
    bad_pages,
    by_data_set,
    cached,
    disk_faults,
    disk_states,
    evictions,
    listing,
    one,
    ops,
    pinned,
    restarts,
    tiers,
)

_D = ("data_set",)
_WAITS = (
    ("queue", ("wait_queue_us",)),
    ("store", ("wait_store_us",)),
    ("network", ("wait_network_us",)),
    ("disk", ("wait_disk_us", "disk_us")),
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table. `name` of a counter lacks its `_total`; `unit` is for people."""

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    text: str
    values: Callable[[Facts], Values] | Latency

    @property
    def full_name(self) -> str:
        return f"{self.name}_total" if self.kind == "counter" else self.name


METRICS = (
    Metric(
        "stoker_reads",
        "counter",
        "reads",
        (*_D, "from"),
        "Reads that the kernel asked Stoker for, by where their bytes came from: `cache` or `source`.",
        by_data_set(("cache", ("hits",)), ("source", ("misses",))),
    ),
    Metric(
        "stoker_read_bytes",
        "counter",
        "bytes",
        (*_D, "from"),
        "Bytes of these reads.",
        by_data_set(("cache", ("hit_bytes",)), ("source", ("miss_bytes",))),
    ),
    Metric(
        "stoker_read_seconds",
        "counter",
        "seconds",
        (*_D, "from"),
        "Time of these reads, each from its arrival until its answer.",
        by_data_set(("cache", ("hit_us",)), ("source", ("miss_us",)), scale=US),
    ),
    Metric("stoker_read_errors", "counter", "reads", _D, "Reads that failed.", by_data_set(("", ("errors",)))),
    Metric(
        "stoker_read_wait_seconds",
        "counter",
        "seconds",
        (*_D, "part"),
        "What reads wait for: `queue` (a turn), `store` (the first byte), `network` (the body), `disk` (the cache's). "
        "Each read for itself, also those of the kernel's read-ahead.",
        by_data_set(*_WAITS, scale=US),
    ),
    Metric(
        "stoker_source_requests",
        "counter",
        "requests",
        (*_D, "status"),
        "Requests for data to sources, by class of status: `2xx`, `3xx`, `4xx`, `5xx`, or `none` (no answer came).",
        by_data_set(*((status, (f"status_{status}",)) for status in STATUSES)),
    ),
    Metric(
        "stoker_source_bytes",
        "counter",
        "bytes",
        _D,
        "Bytes received from sources, whoever they were for.",
        by_data_set(("", ("source_bytes",))),
    ),
    Metric(
        "stoker_source_failures",
        "counter",
        "requests",
        _D,
        "Requests to sources that brought less than was asked, whatever their status.",
        by_data_set(("", ("source_errors",))),
    ),
    Metric(
        "stoker_source_retries",
        "counter",
        "requests",
        _D,
        "Requests made again after a failure.",
        by_data_set(("", ("source_retries",))),
    ),
    Metric(
        "stoker_source_first_byte_seconds",
        "histogram",
        "seconds",
        (),
        "From a request to a source until its answer began.",
        Latency.FIRST_BYTE,
    ),
    Metric(
        "stoker_source_request_seconds",
        "histogram",
        "seconds",
        (),
        "From a request to a source until its last byte, without the time that the cache took to store them.",
        Latency.REQUEST,
    ),
    Metric(
        "stoker_cache_read_seconds",
        "histogram",
        "seconds",
        (),
        "Reads answered from the cache, until the bytes were there; the copy to the reader comes after that.",
        Latency.CACHE_READ,
    ),
    Metric(
        "stoker_listing_requests",
        "counter",
        "requests",
        ("status",),
        "Requests made to list sources and to look at objects, by class of status; only those answered.",
        listing,
    ),
    Metric(
        "stoker_stored_bytes",
        "counter",
        "bytes",
        _D,
        "Bytes written to the cache.",
        by_data_set(("", ("stored_bytes",))),
    ),
    Metric(
        "stoker_uncached_bytes",
        "counter",
        "bytes",
        _D,
        "Bytes handed to readers past the cache: `Bypass`, no room, a failing disk.",
        by_data_set(("", ("inline_bytes",))),
    ),
    Metric(
        "stoker_read_ahead_bytes",
        "counter",
        "bytes",
        _D,
        "Bytes asked for before a reader did.",
        by_data_set(("", ("ahead_bytes",))),
    ),
    Metric(
        "stoker_fetched_again_bytes",
        "counter",
        "bytes",
        _D,
        "Bytes asked for of objects that had been evicted: what a larger cache would have saved.",
        by_data_set(("", ("again_bytes",))),
    ),
    Metric(
        "stoker_bad_pages",
        "counter",
        "pages",
        ("found",),
        "Cached pages that were not what was stored, dropped and fetched again: found by a `read`, or by the `check` "
        "after a boot.",
        bad_pages,
    ),
    Metric(
        "stoker_evictions",
        "counter",
        "objects",
        ("reason",),
        f"Objects taken out of the cache, by reason: {', '.join(f'`{one.name}`' for one in Why)}.",
        evictions(0),
    ),
    Metric("stoker_evicted_bytes", "counter", "bytes", ("reason",), "Disk space that these had taken.", evictions(1)),
    Metric(
        "stoker_cached_bytes",
        "gauge",
        "bytes",
        (*_D, "tier"),
        "Disk space of a data set's cached objects. An object that several data sets share counts for each.",
        cached(0),
    ),
    Metric("stoker_cached_files", "gauge", "files", (*_D, "tier"), "Cached objects of a data set.", cached(1)),
    Metric(
        "stoker_pinned_bytes",
        "gauge",
        "bytes",
        (*_D, "tier"),
        "Disk space of what a data set has pinned, cached or not.",
        pinned(0),
    ),
    Metric("stoker_pinned_files", "gauge", "files", (*_D, "tier"), "Objects that a data set has pinned.", pinned(1)),
    Metric(
        "stoker_cache_limit_bytes",
        "gauge",
        "bytes",
        ("tier",),
        "What the tier may hold as things are: its quota, or less on a fuller disk.",
        tiers(lambda tier: tier.limit_bytes),
    ),
    Metric(
        "stoker_cache_used_bytes",
        "gauge",
        "bytes",
        ("tier",),
        "What it holds, the index and files being deleted included.",
        tiers(lambda tier: tier.used_bytes - tier.granted.bytes),
    ),
    Metric(
        "stoker_cache_limit_inodes",
        "gauge",
        "inodes",
        ("tier",),
        "The same for files and folders.",
        tiers(lambda tier: tier.limit_inodes),
    ),
    Metric(
        "stoker_cache_used_inodes",
        "gauge",
        "inodes",
        ("tier",),
        "The same for files and folders.",
        tiers(lambda tier: tier.used_inodes - tier.granted.inodes),
    ),
    Metric(
        "stoker_cache_disk_state",
        "gauge",
        "0 or 1",
        ("tier", "state"),
        f"1 for the state that the disk is in: {', '.join(f'`{state}`' for state in TIER_STATES)}.",
        disk_states,
    ),
    Metric(
        "stoker_cache_disk_fault",
        "gauge",
        "1",
        ("tier", "reason"),
        "Present with the reason while the disk is `full` or `failing`.",
        disk_faults,
    ),
    Metric(
        "stoker_fetch_requests_waiting",
        "gauge",
        "requests",
        (),
        "Requests to sources that wait for a turn (twice a second).",
        one(lambda facts: facts.counting.told(Node.WAITING, ("fetcher",))),
    ),
    Metric(
        "stoker_fetch_requests_running",
        "gauge",
        "requests",
        (),
        "Requests to sources that are under way (twice a second).",
        one(lambda facts: facts.counting.told(Node.RUNNING, ("fetcher",))),
    ),
    Metric(
        "stoker_fuse_requests_pending",
        "gauge",
        "requests",
        (),
        "Requests of the kernel that wait for pages (each second).",
        one(lambda facts: facts.counting.told(Node.PENDING, ("worker",))),
    ),
    Metric(
        "stoker_presence_slots_used",
        "gauge",
        "chunks",
        (),
        "Chunks on disk that are not in the index yet.",
        one(lambda facts: facts.slots[0]),
    ),
    Metric("stoker_presence_slots", "gauge", "chunks", (), "Room for such chunks.", one(lambda facts: facts.slots[1])),
    Metric("stoker_fuse_requests", "counter", "requests", ("op",), "Requests of the kernel, by kind.", ops),
    Metric(
        "stoker_worker_busy_seconds",
        "counter",
        "seconds",
        (),
        "Time in which FUSE workers worked; one worker has a second of it per second at most.",
        one(lambda facts: facts.counting.told(Node.BUSY_US, ("worker",)) * US),
    ),
    Metric(
        "stoker_process_restarts",
        "counter",
        "processes",
        ("role",),
        "Processes of the node that were started again: `daemon`, `worker`, `fetcher`, `supervisor`.",
        restarts,
    ),
    Metric("stoker_mounts", "gauge", "mounts", (), "Mounts of this node.", one(lambda facts: facts.mounts)),
    Metric(
        "stoker_jobs",
        "gauge",
        "jobs",
        ("phase",),
        "Jobs that this daemon knows, by phase.",
        lambda facts: [((phase,), facts.phases.get(phase, 0)) for phase in PHASES],
    ),
    Metric("stoker_build_info", "gauge", "1", ("version",), "The version.", lambda facts: [((facts.version,), 1.0)]),
    Metric(
        "stoker_start_time_seconds",
        "gauge",
        "seconds since 1970",
        (),
        "When the daemon's process began.",
        one(lambda facts: facts.started),
    ),
)
