"""Numbers as people read them."""

from __future__ import annotations

import pytest

from stoker.api.human import files, size
from stoker.cli.render import duration, hidden, percent


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 49, "1.5 PiB"),
        (1 << 62, "4096.0 PiB"),
    ],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (125, "2m05s"), (7500, "2h05m")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0, "0.0%"), (99.99, "99.9%"), (100, "100.0%")])
def test_percent_is_full_only_at_the_end(value: float | None, text: str) -> None:
    assert percent(value) == text


def test_counts() -> None:
    assert files(1) == "1 file"
    assert files(0) == "0 files"
    assert files(4000) == "4,000 files"
    assert hidden({"NulByte": 0}) == ""
