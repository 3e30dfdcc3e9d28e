"""From what workers report to samples: readers that wait count once, and time without readers is that of one."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.fuse.pace import Pace
from stoker.node import pace as module
from stoker.node.pace import KEEP_S, Paces, union_s
from stoker.node.whyslow import COUNTED, Sample

NAME = "default/data"


class Rig:
    """Two workers and a daemon, on one clock."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.workers = [Pace(), Pace()]
        self.paces = Paces(2, lambda: {name: dict(row) for name, row in self.counts.items()}, 100.0)

    def read(self, worker: int, thread: int, start: float, stop: float) -> None:
        """A read that waits from `start` to `stop`."""
        self.workers[worker].began(thread, start)
        self.workers[worker].ended(thread, stop)

    def report(self, now: float, busy: float = 0.0) -> None:
        for index, worker in enumerate(self.workers):
            report = worker.report(now)
            paces: list[Any] = [] if report is None else [{"dataSet": NAME, **report}]
            self.paces.heard(index, {"at": now * 1e6, "busy": busy * 1e6, "paces": paces})

    def sample(self, now: float, lag_s: float = 0.0) -> list[Sample]:
        self.paces.sample(now, lag_s)
        return self.paces.samples(NAME, 0)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [([], 0), ([(1, 2)], 1), ([(1, 3), (2, 4)], 3), ([(2, 4), (1, 3), (8, 9)], 4), ([(1, 9), (2, 3)], 8)],
)
def test_union(spans: list[tuple[float, float]], seconds: float) -> None:
    assert union_s(spans) == seconds


def test_requests_of_one_reader_in_two_workers_count_once() -> None:
    rig = Rig()
    rig.read(0, 7, 100, 104)
    rig.read(1, 7, 102, 106)
    rig.report(106)
    (sample,) = rig.sample(106)
    assert (sample.reader_s, sample.waited_s, sample.requests_s, sample.readers) == (6, 6, 8, 1)


def test_two_readers_count_twice() -> None:
    rig = Rig()
    rig.read(0, 7, 100, 104)
    rig.read(1, 8, 100, 104)
    rig.report(104)
    (sample,) = rig.sample(104)
    assert (sample.reader_s, sample.waited_s, sample.readers) == (8, 8, 2)


def test_a_reader_that_computes_is_there_meanwhile() -> None:
    rig = Rig()
    rig.read(0, 7, 100, 101)
    rig.report(101)
    rig.sample(102)
    rig.read(1, 7, 120, 121)
    rig.report(121)
    *_, sample = rig.sample(122)
    assert (sample.reader_s, sample.waited_s) == (20, 1)


def test_readers_that_come_and_go_leave_the_time_of_one() -> None:
    rig = Rig()
    for thread in range(5):
        rig.read(0, thread, 100 + 10 * thread, 101 + 10 * thread)
    rig.report(141)
    (sample,) = rig.sample(141)
    assert (sample.reader_s, sample.waited_s) == (41, 5)


def test_a_pause_of_more_than_a_minute_is_nobodys() -> None:
    rig = Rig()
    rig.read(0, 7, 100, 101)
    rig.report(101)
    rig.sample(102)
    rig.read(0, 7, 300, 301)
    rig.report(301)
    *_, sample = rig.sample(302)
    assert sample.reader_s == 1


def test_a_read_that_hangs_shows_while_it_does() -> None:
    rig = Rig()
    rig.workers[0].began(7, 100)
    for now in (101, 102, 103):
        rig.report(now)
    (sample,) = rig.sample(103)
    assert (sample.waited_s, sample.requests_s) == (3, 3)


def test_workers_that_report_at_other_times_are_joined() -> None:
    rig = Rig()
    rig.read(0, 7, 100, 104)
    report = rig.workers[0].report(104)
    assert report is not None
    rig.paces.heard(0, {"at": 104e6, "busy": 0, "paces": [{"dataSet": NAME, **report}]})
    rig.sample(103, lag_s=2)  # the other worker has not told of this time
    rig.read(1, 7, 101, 104)
    rig.report(105)
    samples = rig.sample(105)
    assert sum(sample.waited_s for sample in samples) == pytest.approx(4)


def test_counts_are_those_since_the_last_sample() -> None:
    rig = Rig()
    rig.counts[NAME] = dict.fromkeys(COUNTED, 5)
    rig.read(0, 7, 100, 101)
    rig.report(101)
    assert [sample.counts["hits"] for sample in rig.sample(102)] == [5]
    rig.counts[NAME] = dict.fromkeys(COUNTED, 7)
    assert [sample.counts["hits"] for sample in rig.sample(104)] == [5, 2]
    assert len(rig.sample(106)) == 2, "nothing new, no sample"


def test_all_workers_busy_is_the_product() -> None:
    rig = Rig()
    rig.report(101)
    rig.read(0, 7, 101, 102)
    rig.report(102, busy=1.0)
    (sample,) = rig.sample(102)
    assert sample.busy == pytest.approx(0.25), "half of the two seconds, in each worker"


def test_samples_and_data_sets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DATA_SETS", 2)
    rig = Rig()
    report = {"readers": [[1, 100e6, 101e6, []]], "waited": 0}
    for name in "abc":
        rig.paces.heard(0, {"at": 101e6, "busy": 0, "paces": [{"dataSet": name, **report}]})
    assert rig.paces.known() == {"b", "c"}
    rig.sample(102)
    rig.sample(102 + KEEP_S + 1)
    assert rig.paces.samples("c", 0) == []


def test_reads_that_are_counted_before_a_worker_tells_of_them_are_in_its_sample() -> None:
    rig = Rig()
    rig.read(0, 7, 100, 101)
    rig.counts[NAME] = dict.fromkeys(COUNTED, 5)
    assert rig.sample(102) == []
    rig.report(102.5)
    assert [sample.counts["hits"] for sample in rig.sample(104)] == [5]
