"""Ranges and conditions: what S3 answers to each."""

from __future__ import annotations

import pytest

from stoker.s3.conditions import check_conditions, range_of
from stoker.s3.errors import NotModified, S3Error

NS = 1_000_000_000
MTIME = 1_700_000_000 * NS
AT, BEFORE, AFTER = (
    "Tue, 14 Nov 2023 22:13:20 GMT",
    "Tue, 14 Nov 2023 22:13:19 GMT",
    "Tue, 14 Nov 2023 22:13:21 GMT",
)


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("", 10, None),
        ("bytes=0-3", 10, (0, 4)),
        ("bytes=3-", 10, (3, 10)),
        ("bytes=9-9", 10, (9, 10)),
        ("bytes=0-99", 10, (0, 10)),
        ("bytes=-3", 10, (7, 10)),
        ("bytes=-99", 10, (0, 10)),
        ("Bytes = 1 - 2", 10, (1, 3)),
        ("bytes=4-3", 10, None),
        ("bytes=-", 10, None),
        ("bytes=0-1,4-5", 10, None),
        ("bytes=a-b", 10, None),
        ("lines=0-1", 10, None),
        ("bytes=10-", 10, "InvalidRange"),
        ("bytes=-0", 10, "InvalidRange"),
        ("bytes=0-", 0, "InvalidRange"),
        ("bytes=-5", 0, "InvalidRange"),
    ],
)
def test_ranges(text: str, size: int, expected: tuple[int, int] | str | None) -> None:
    headers = {"range": text} if text else {}
    if isinstance(expected, str):
        with pytest.raises(S3Error) as refused:
            range_of(headers, size, "e", MTIME)
        assert refused.value.code == expected
        assert refused.value.headers == {"Content-Range": f"bytes */{size}"}
    else:
        assert range_of(headers, size, "e", MTIME) == expected


@pytest.mark.parametrize(
    ("condition", "taken"), [('"e"', True), ('"other"', False), ('W/"e"', False), (AT, True), (AFTER, False)]
)
def test_a_range_of_another_version_is_the_whole_object(condition: str, taken: bool) -> None:
    headers = {"range": "bytes=0-1", "if-range": condition}
    assert range_of(headers, 10, "e", MTIME) == ((0, 2) if taken else None)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"if-match": '"e"'}, 200),
        ({"if-match": "e"}, 200),
        ({"if-match": "*"}, 200),
        ({"if-match": '"a", "e"'}, 200),
        ({"if-match": '"a"'}, 412),
        ({"if-match": 'W/"e"'}, 412),
        ({"if-none-match": '"e"'}, 304),
        ({"if-none-match": 'W/"e"'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"a"'}, 200),
        ({"if-modified-since": BEFORE}, 200),
        ({"if-modified-since": AT}, 304),
        ({"if-modified-since": AFTER}, 304),
        ({"if-unmodified-since": BEFORE}, 412),
        ({"if-unmodified-since": AT}, 200),
        ({"if-unmodified-since": "never"}, 200),
        ({"if-match": '"e"', "if-unmodified-since": BEFORE}, 200),
        ({"if-match": '"a"', "if-unmodified-since": AFTER}, 412),
        ({"if-none-match": '"a"', "if-modified-since": AFTER}, 200),
        ({"if-none-match": '"e"', "if-modified-since": BEFORE}, 304),
        ({"if-match": '"a"', "if-none-match": '"e"'}, 412),
    ],
)
def test_conditions(headers: dict[str, str], status: int) -> None:
    answered = 200
    try:
        check_conditions(headers, "e", MTIME)
    except NotModified:
        answered = 304
    except S3Error as error:
        answered = error.status
    assert answered == status


def test_a_client_that_sends_back_the_time_it_was_told_has_this_version() -> None:
    """A store's time may have fractions of a second; headers have none."""
    with pytest.raises(NotModified):
        check_conditions({"if-modified-since": AFTER}, "e", MTIME + 1)


def test_a_weak_etag_matches_weakly_only() -> None:
    with pytest.raises(NotModified):
        check_conditions({"if-none-match": 'W/"e"'}, 'W/"e"', MTIME)
    with pytest.raises(S3Error):
        check_conditions({"if-match": 'W/"e"'}, 'W/"e"', MTIME)
