"""What is counted of a data set never goes back: not when a session ends, not when a process dies at any moment."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stoker.fetch.counters import Counter, Counters, Node, create_counters
from stoker.fetch.session import MountSpec, SessionSpec
from stoker.node import counting
from stoker.node.counting import OTHERS, Counting, Past, create_past
from stoker.node.store import Entry

PROCESSES = ("daemon.0", "worker.0", "worker.1", "fetcher.0")


def session(name: str, slot: int = 0, data_set: str = "default/data") -> SessionSpec:
    return SessionSpec(name, slot, data_set, "", (), MountSpec())


class Rig:
    """Shared memory that outlives daemons, one writer, and the sessions there are."""

    def __init__(self) -> None:
        fds = {f"counters.{process}": {"counters": create_counters()} for process in PROCESSES}
        self.entries = {key: Entry(key, fd) for key, fd in {**fds, "past": {"past": create_past()}}.items()}
        self.living: list[SessionSpec] = []
        self.worker = Counters(self.entries["counters.worker.0"].fds["counters"])
        self.daemon = self.new_daemon()

    def new_daemon(self) -> Counting:
        self.daemon = Counting(self.entries, lambda: self.living)
        return self.daemon

    def start(self, spec: SessionSpec) -> None:
        self.daemon.began(spec)
        self.living.append(spec)
        self.worker.claim(spec.slot, spec.id)

    def end(self, spec: SessionSpec) -> None:
        self.living.remove(spec)
        self.daemon.ended(spec)

    def errors(self, data_set: str = "default/data") -> int:
        return self.daemon.by_data_set().get(data_set, {}).get("errors", 0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    for entry in rig.entries.values():
        entry.close()


def test_sessions_of_a_data_set_are_added_up(rig: Rig) -> None:
    for slot, name in enumerate("ab"):
        rig.start(session(name, slot))
        rig.worker.add(slot, Counter.ERRORS, 10)
    rig.end(rig.living[0])
    assert rig.errors() == 20
    rig.start(session("c", 0, "default/other"))
    rig.worker.add(0, Counter.ERRORS, 1)
    assert (rig.errors(), rig.errors("default/other")) == (20, 1)


def test_a_slot_that_is_given_away_shows_nothing_of_before(rig: Rig) -> None:
    first, second = session("a"), session("b")
    rig.start(first)
    rig.worker.add(0, Counter.ERRORS, 10)
    rig.end(first)
    rig.daemon.began(second)
    rig.living.append(second)
    assert rig.daemon.of(second)["errors"] == 0, "its worker has not heard of it yet"
    assert rig.errors() == 10


def test_what_was_on_its_way_when_a_session_ended_is_counted(rig: Rig) -> None:
    spec = session("a")
    rig.start(spec)
    rig.worker.add(0, Counter.ERRORS, 10)
    rig.end(spec)
    rig.worker.add(0, Counter.ERRORS, 5)
    assert rig.errors() == 15
    rig.worker.add(0, Counter.ERRORS, 2)
    rig.start(session("b"))
    assert rig.errors() == 17


def test_a_new_daemon_knows_what_its_predecessor_counted(rig: Rig) -> None:
    ended, living = session("a", 0), session("b", 1)
    for spec in (ended, living):
        rig.start(spec)
        rig.worker.add(spec.slot, Counter.ERRORS, 10)
    rig.end(ended)
    rig.new_daemon()
    assert rig.errors() == 20
    assert rig.daemon.told(Node.STARTS, ("daemon",)) == 2


def test_a_daemon_that_dies_between_counting_an_end_and_forgetting_the_session_counts_it_once(rig: Rig) -> None:
    spec = session("a")
    rig.start(spec)
    rig.worker.add(0, Counter.ERRORS, 10)
    rig.daemon.ended(spec)
    rig.new_daemon()  # finds the session among those that live
    assert rig.errors() == 10
    rig.end(spec)
    assert rig.errors() == 10


def test_a_change_that_a_death_interrupts_is_finished(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = rig.entries["past"].fds["past"]
    counts = dict.fromkeys(counting.NAMES.values(), 7)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    past = Past(fd)
    past.add("default/data", counts, "a")
    monkeypatch.setattr(Past, "_finish", die)
    with pytest.raises(KeyboardInterrupt):
        past.add("default/data", counts, "b")
    monkeypatch.undo()
    assert Past(fd).all()["default/data"]["errors"] == 14


def test_data_sets_beyond_the_bound_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_DATA_SETS", 3)
    fd = create_past()
    past = Past(fd)
    counts = dict.fromkeys(counting.NAMES.values(), 1)
    for number in range(6):
        past.add(f"default/{number}", counts, str(number))
    found = {name: row["errors"] for name, row in Past(fd).all().items()}
    assert found == {"default/0": 1, "default/1": 1, "default/2": 1, OTHERS: 3}
    os.close(fd)
