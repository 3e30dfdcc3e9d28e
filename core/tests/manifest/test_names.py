"""The name table of docs/SEMANTICS.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.api.reasons import Reason
from stoker.manifest.names import hidden_reason

SHOWN = [
    b"a",
    b"a/b",
    b"a/",
    b"a/b/",
    b"...",
    b"..a",
    b".a/b",
    b"a/.b/..c",
    b" ",
    b"a b",
    b"a+b",
    b"100%",
    b"%2F",
    b"q?x=1",
    b"folder#1#/f",
    b"new\nline",
    b"\x01\x7f",
    b"\\",
    b"\xff\xfe",
    "\u00fc".encode(),
    "u\u0308".encode(),
    b"n" * 255,
    ("漢" * 85).encode(),
    b"/".join([b"d" * 255] * 4),
]
HIDDEN = [
    (b"a//b", Reason.EmptyComponent),
    (b"/lead", Reason.EmptyComponent),
    (b"/", Reason.EmptyComponent),
    (b"a//", Reason.EmptyComponent),
    (b".", Reason.DotComponent),
    (b"..", Reason.DotComponent),
    (b"./", Reason.DotComponent),
    (b"x/./y", Reason.DotComponent),
    (b"x/../z", Reason.DotComponent),
    (b"x/..", Reason.DotComponent),
    (b"a\0b", Reason.NulByte),
    (b"a//\0", Reason.NulByte),
    (b"n" * 256, Reason.NameTooLong),
    (b"a/" + b"n" * 300 + b"/b", Reason.NameTooLong),
    (("漢" * 100).encode(), Reason.NameTooLong),
    (b"d/" * 2048 + b"f", Reason.NameTooLong),
]


@pytest.mark.parametrize("key", SHOWN)
def test_shown(key: bytes) -> None:
    assert hidden_reason(key) is None


@pytest.mark.parametrize(("key", "reason"), HIDDEN)
def test_hidden(key: bytes, reason: Reason) -> None:
    assert hidden_reason(key) is reason


@given(st.lists(st.sampled_from([b"/", b".", b"\0", b"a", b"\n", b"n" * 255]), min_size=1, max_size=9).map(b"".join))
def test_a_key_is_shown_exactly_when_all_its_components_are_names(key: bytes) -> None:
    components = key.removesuffix(b"/").split(b"/")
    good = all(0 < len(c) <= 255 and c not in (b".", b"..") and b"\0" not in c for c in components)
    assert (hidden_reason(key) is None) == good
