"""One fault of a disk is told once, however many meet it, and its end once."""

from __future__ import annotations

from stoker.api.reasons import Reason
from stoker.cache.health import SETTLED_S, Health


class Told:
    """A tier's health, the words it told, and its clock."""

    def __init__(self) -> None:
        self.words: list[Reason] = []
        self.now = 0.0
        self.health = Health(lambda reason, _text: self.words.append(reason), lambda: self.now)

    def settle_after(self, seconds: float) -> None:
        self.now += seconds
        self.health.settle()


def test_a_fault_that_all_meet_again_and_again_is_told_once() -> None:
    told = Told()
    for who in (0, 1, "owner", 0, 1):
        told.health.bad(who, Reason.CacheFull, "no space")
    assert told.words == [Reason.CacheFull]
    assert told.health.state == "full"
    for who in (0, 1):
        told.health.good(who)
    told.settle_after(SETTLED_S)
    assert told.words == [Reason.CacheFull], "the owner still meets it"
    told.health.good("owner")
    told.settle_after(SETTLED_S)
    assert told.words == [Reason.CacheFull, Reason.CacheRecovered]
    assert told.health.state == "ok"


def test_writes_that_succeed_now_and_then_do_not_end_a_fault() -> None:
    told = Told()
    for _ in range(5):
        told.health.bad(0, Reason.CacheFull, "no space")
        told.health.good(0)
        told.settle_after(SETTLED_S / 2)
    assert told.words == [Reason.CacheFull]


def test_a_worse_fault_is_told_and_a_lesser_one_is_not() -> None:
    told = Told()
    told.health.bad(0, Reason.CacheFull, "no space")
    told.health.bad(1, Reason.CacheDiskFailing, "input/output error")
    told.health.bad(0, Reason.CacheFull, "no space")
    assert told.words == [Reason.CacheFull, Reason.CacheDiskFailing]
    assert told.health.state == "failing"
    told.health.clear()
    told.settle_after(SETTLED_S)
    assert told.words[-1] == Reason.CacheRecovered


def test_what_is_well_says_nothing() -> None:
    told = Told()
    told.health.good(0)
    told.settle_after(SETTLED_S)
    assert told.words == []
