"""docs/METRICS.md is what the code serves, and what it serves has names, units and bounds that hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoker.api.reasons import Reason
from stoker.cache.amount import Amount
from stoker.cache.shares import Why
from stoker.cache.usage import TierUsage
from stoker.fetch.counters import Counter, Counters, Node, create_counters
from stoker.fetch.session import MountSpec, SessionSpec
from stoker.node import metricvalues
from stoker.node.counting import Counting, create_past
from stoker.node.metrics import PATH, Exposition, page
from stoker.node.metrictable import METRICS
from stoker.node.metricvalues import Facts, bounded
from stoker.node.store import Entry

LABELS = {"data_set", "from", "part", "status", "found", "reason", "tier", "state", "op", "role", "phase", "version"}
SPEC = SessionSpec("a", 0, "default/data", "", (), MountSpec())


@pytest.fixture
def facts() -> Facts:
    processes = ("daemon.0", "worker.0", "fetcher.0")
    entries = {f"counters.{p}": Entry("", {"counters": create_counters()}) for p in processes}
    counting = Counting({**entries, "past": Entry("", {"past": create_past()})}, lambda: [SPEC])
    tiers = [
        TierUsage("/secret/path", 100, 50, 10, 5, Amount(7, 1), Amount(3, 1), "ok"),
        TierUsage("/other", 100, 50, 10, 5, Amount(), Amount(), "failing", Reason.CacheDiskFailing),
    ]
    worker = Counters(entries["counters.worker.0"].fds["counters"])
    worker.claim(0, "a")
    worker.hit(0, 100, 0.0003)
    worker.miss(0, 50, 2.0)
    worker.count_op(15)
    worker.count_op(63)
    worker.tally(Node.STARTS, 3)
    worker.answered(0, 503, 99.0)
    worker.add(0, Counter.STATUS_5XX, 3)
    worker.received(0, 0.02, 0.01)
    counting.own.evicted(Why.Lru, 3, 4096)
    return Facts(
        counting,
        tiers,
        {("default/data", 1): (4096, 2)},
        {("default/data", 0): (8192, 3)},
        1,
        {"Running": 2},
        (3, 4096),
        "1.2",
        5.0,
    )


def served(facts: Facts) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(Exposition().text(facts).decode())
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


def test_the_page_is_up_to_date() -> None:
    root = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").exists())
    assert (root / PATH).read_text() == page()


def test_all_of_the_table_and_nothing_else_is_served(facts: Facts) -> None:
    text = Exposition().text(facts).decode()
    assert re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE) == [(m.full_name, m.kind) for m in METRICS]


def test_names_and_labels_follow_the_rules() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"stoker_[a-z_]+", metric.name), metric.name
        assert set(metric.labels) <= LABELS, metric.name
        assert metric.text.endswith("."), metric.name
        if metric.unit in ("seconds", "bytes"):
            assert f"_{metric.unit}" in metric.name, metric.name


def test_values_come_from_what_was_counted(facts: Facts) -> None:
    found = served(facts)
    assert found["stoker_reads_total", "cache", "default/data"] == 1
    assert found["stoker_read_bytes_total", "default/data", "source"] == 50
    assert found["stoker_read_seconds_total", "default/data", "source"] == pytest.approx(2)
    assert found["stoker_source_requests_total", "5xx", "default/data"] == 4
    assert found["stoker_cache_read_seconds_bucket", "0.00025"] == 0
    assert found["stoker_cache_read_seconds_bucket", "0.0005"] == found["stoker_cache_read_seconds_count",] == 1
    assert found["stoker_source_first_byte_seconds_bucket", "30.0"] == 0
    assert found["stoker_source_first_byte_seconds_bucket", "+Inf"] == 1
    assert found["stoker_source_request_seconds_bucket", "0.025"] == found["stoker_source_request_seconds_count",] == 1
    assert found["stoker_evictions_total", "Lru"] == 3
    assert found["stoker_evicted_bytes_total", "Lru"] == 4096
    assert {name for metric, *name in found if metric == "stoker_evictions_total" for name in name} == {
        reason.name for reason in Why
    }
    assert (found["stoker_fuse_requests_total", "read"], found["stoker_fuse_requests_total", "other"]) == (1, 1)
    assert found["stoker_process_restarts_total", "worker"] == 2
    assert found["stoker_cache_used_bytes", "0"] == 43, "what is only promised to fetchers is not used"
    assert found["stoker_cache_disk_state", "1", "failing"] == found["stoker_cache_disk_state", "0", "ok"] == 1
    assert found["stoker_cache_disk_fault", "1", "CacheDiskFailing"] == 1
    assert found["stoker_cached_files", "1", "default/data"] == 2
    assert (found["stoker_jobs", "Running"], found["stoker_jobs", "Failed"]) == (2, 0)


def test_the_largest_data_sets_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metricvalues, "MOST_DATA_SETS", 2)
    held = {("a", 0): Amount(1, 1), ("b", 0): Amount(5, 1), ("c", 1): Amount(9, 1), ("d", 0): Amount(2, 3)}
    assert bounded(held) == {("b", 0): (5, 1), ("c", 1): (9, 1), ("(others)", 0): (3, 4)}


def test_no_path_is_served(facts: Facts) -> None:
    assert b"/secret" not in Exposition().text(facts)
