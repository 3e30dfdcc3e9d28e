"""What is asked again and when, and how a store that says `slow down` is obeyed."""

from __future__ import annotations

import math

import pytest

from stoker.api.reasons import Reason
from stoker.fetch.retry import HALVE_EVERY_S, HOLD_S, Patience, Rate, Retry
from stoker.sources.base import SourceError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def failure(reason: Reason = Reason.SourceUnavailable, retryable: bool = True, after: float = 0.0) -> SourceError:
    return SourceError(reason, "x", retryable=retryable, retry_after_s=after)


def retry(clock: Clock, retries: int = 7, deadline_s: float = 120.0, jitter: float = 1.0) -> Retry:
    return Retry(Patience(retries, deadline_s, 30.0), clock, lambda: jitter)


def test_waits_double_and_end_after_the_retries() -> None:
    one = retry(Clock())
    waits = [one.wait_after(failure()) for _ in range(8)]
    assert waits == [pytest.approx(w) for w in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)] + [None]


def test_jitter_halves_a_wait_at_most() -> None:
    assert retry(Clock(), jitter=0.0).wait_after(failure()) == pytest.approx(0.05)


@pytest.mark.parametrize("reason", [Reason.AccessDenied, Reason.SourceNotFound, Reason.SourceChanged])
def test_what_no_retry_mends_is_not_retried(reason: Reason) -> None:
    assert retry(Clock()).wait_after(failure(reason, retryable=False)) is None


def test_retry_after_is_honoured_within_the_deadline() -> None:
    one = retry(Clock())
    assert one.wait_after(failure(after=20)) == 20
    assert one.wait_after(failure(after=500)) is None


def test_refusals_for_load_end_with_the_deadline_only() -> None:
    clock = Clock()
    one = retry(clock, retries=2, deadline_s=60)
    waited = 0.0
    while (wait := one.wait_after(failure(Reason.Throttled))) is not None:
        clock.now += wait
        waited += wait
    assert 45 < waited <= 60


def test_progress_begins_anew() -> None:
    one = retry(Clock(), retries=1)
    assert one.wait_after(failure()) is not None
    one.progress()
    assert one.wait_after(failure()) is not None
    assert one.wait_after(failure()) is None


def test_a_refusal_halves_the_requests_at_once_and_success_restores_them() -> None:
    clock = Clock()
    rate = Rate(clock)
    rate.running = 16
    rate.refused(0)
    rate.refused(0)
    assert (rate.limit, rate.hold_s()) == (8, pytest.approx(HOLD_S))
    clock.now += HALVE_EVERY_S
    rate.running = 8
    rate.refused(2.5)
    assert (rate.limit, rate.hold_s()) == (4, 2.5)
    rate.running = 1
    assert not rate.fits()
    clock.now += 3
    assert rate.fits()
    for _ in range(1000):
        rate.succeeded()
    assert rate.limit == math.inf


def test_the_limit_never_goes_below_one() -> None:
    clock = Clock()
    rate = Rate(clock)
    for _ in range(20):
        clock.now += HALVE_EVERY_S
        rate.refused(0)
    assert rate.limit == 1
