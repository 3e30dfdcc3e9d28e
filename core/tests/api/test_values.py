"""Quantities, durations, cron schedules and time zones: what is accepted, what it means, what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from stoker.api.duration import Duration
from stoker.api.fielderror import FieldError
from stoker.api.quantity import CountOrPercent, Percent, Quantity, SignedSize, Size, SizeOrPercent
from stoker.api.schedule import check_cron, check_time_zone


@pytest.mark.parametrize(
    ("written", "bytes_"),
    [
        (0, 0),
        (4096, 4096),
        ("4096", 4096),
        ("1Ki", 1024),
        ("500Gi", 500 << 30),
        ("1.5Ti", 3 << 39),
        ("0.5Gi", 1 << 29),
        (".5Gi", 1 << 29),
        ("2k", 2000),
        ("3M", 3_000_000),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("15e-1", 2),
        ("0.1", 1),  # as Kubernetes: away from zero
        ("+1Gi", 1 << 30),
        ("7Ei", 7 << 60),
    ],
)
def test_sizes(written: int | str, bytes_: int) -> None:
    assert TypeAdapter(Size).validate_python(written) == bytes_


@pytest.mark.parametrize(
    "written",
    [
        "",
        "Gi",
        "1GB",
        "1 Gi",
        "1gi",
        "100m",
        "1K",
        "-1Gi",
        "1e999",
        "8Ei",
        "1Gi\n",
        "٣Gi",
        True,
        1.5,
        None,
        [],
        "9" * 40,
    ],
)
def test_refused_sizes(written: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Size).validate_python(written)


def test_negative_sizes_leave_that_much_free_and_are_strings() -> None:
    signed = TypeAdapter(SignedSize)
    assert signed.validate_python("-50Gi") == -(50 << 30)
    assert signed.validate_python("-0.1") == -1
    assert signed.validate_python("50Gi") == 50 << 30
    with pytest.raises(ValidationError, match="negative number"):
        signed.validate_python(-50)


def test_percentages() -> None:
    share = TypeAdapter(SizeOrPercent)
    assert share.validate_python("50%") == Percent(50)
    assert share.validate_python("100%") == Percent(100)
    assert share.validate_python("0%") == Percent(0)
    assert share.validate_python("1Gi") == 1 << 30
    count = TypeAdapter(CountOrPercent)
    assert count.validate_python(3) == 3
    assert count.validate_python("10%") == Percent(10)
    for wrong in ("101%", "-1%", "1.5%", "%", "50 %"):
        with pytest.raises(ValidationError):
            share.validate_python(wrong)
    for wrong in ("3", -1, True, 1.0, "110%"):
        with pytest.raises(ValidationError):
            count.validate_python(wrong)


@given(
    st.integers(0, 10**6),
    st.integers(0, 999),
    st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]),
    st.sampled_from(["", "-"]),
)
def test_a_quantity_comes_back_as_written(whole: int, fraction: int, unit: str, sign: str) -> None:
    written = f"{sign}{whole}.{fraction}{unit}"
    quantity = Quantity.parse(written)
    assert quantity.to_document() == written
    assert Quantity.parse(quantity.to_document()) == quantity


@given(st.integers(0, 2**63 - 1))
def test_a_number_comes_back_as_a_number(number: int) -> None:
    assert Quantity.parse(number).to_document() == number


@pytest.mark.parametrize("adapter", [TypeAdapter(Size), TypeAdapter(SignedSize), TypeAdapter(SizeOrPercent)])
@given(text=st.from_regex(r"\A[+-]?[0-9]{0,4}\.?[0-9]{0,3}([KMGT]i?|[em%][0-9]?)?\Z"))
@example(text="001%")
@example(text="101%")
def test_what_a_size_schema_refuses_the_model_refuses(adapter: TypeAdapter[Quantity], text: str) -> None:
    """The API server sees the pattern only: it must not refuse what the command takes, nor the other way round."""
    fits = re.search(adapter.json_schema()["pattern"], text) is not None
    try:
        adapter.validate_python(text)
    except ValidationError:
        accepted = False
    else:
        accepted = True
    assert fits == accepted


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("30s", 30),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("10us", 1e-5),
        ("24h", 86400),
        ("1m1m", 120),
    ],
)
def test_durations(written: str, seconds: float) -> None:
    assert Duration.parse(written).seconds == seconds
    assert str(Duration.parse(written)) == written


@pytest.mark.parametrize(
    "written", ["", "30", "s", "-1s", "1d", "1 s", "1s ", "1h30", "1s\n", 30, 1.5, None, "9" * 20 + "h"]
)
def test_refused_durations(written: object) -> None:
    with pytest.raises(FieldError, match=r"duration|longer"):
        Duration.parse(written)


@given(st.integers(0, 2**63 - 1))
def test_a_duration_comes_back(nanoseconds: int) -> None:
    text = str(Duration(nanoseconds))
    if len(text) <= 32:
        assert Duration.parse(text) == Duration(nanoseconds)


@pytest.mark.parametrize(
    "written",
    ["", "30 2 * * *", "*/5 * * * *", "0 0 1,15 * 1-5", "0 0 * jan-mar sun", "@daily", "0 0 * * 7", "0-30/10 0 * * *"],
)
def test_schedules(written: str) -> None:
    assert check_cron(written) == written


@pytest.mark.parametrize(
    "written",
    [
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "* * * * * *",
        "@often",
        "1,,2 * * * *",
        "1- * * * *",
        "٣ * * * *",
    ],
)
def test_refused_schedules(written: str) -> None:
    with pytest.raises(FieldError, match=r"five|is not a"):
        check_cron(written)


def test_time_zones() -> None:
    assert check_time_zone("Etc/UTC") == "Etc/UTC"
    assert check_time_zone("Europe/Berlin") == "Europe/Berlin"
    for wrong in ("", "Mars/Olympus", "../etc/passwd", "/etc/localtime", "Europe", "UTC+2"):
        with pytest.raises(FieldError, match="not a time zone"):
            check_time_zone(wrong)
