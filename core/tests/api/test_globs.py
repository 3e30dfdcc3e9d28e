"""Globs: a table of meanings, a naive matcher to compare with, and patterns made to be slow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.api.fielderror import FieldError
from stoker.api.globs import Globs, Selection


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("**", ["a", "a/b", "a/b/c"], []),
        ("*", ["a", ".hidden", "ä"], ["a/b"]),
        ("*.tar", ["a.tar", ".tar"], ["a/b.tar", "a.tar.gz", "a.TAR"]),
        ("**/*.tar", ["a.tar", "x/a.tar", "x/y/a.tar"], ["a.tar/b"]),
        ("train/**", ["train/a", "train/a/b"], ["train", "test/train/a", "training/a"]),
        ("train/", ["train/a", "train/a/b"], ["train"]),
        ("/train/*", ["train/a"], ["train/a/b"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "b"]),
        ("**/a/**/b", ["a/b", "x/a/y/b", "a/a/b/b"], ["b", "a/c"]),
        ("**/a/b/**", ["a/b/c", "a/a/b/c", "x/a/b/c/d"], ["a/b", "b/a/c"]),
        ("a?c", ["abc", "aäc", "a\udcffc"], ["ac", "abbc", "a/c"]),
        ("shard-[0-9][!0-9]", ["shard-1a", "shard-1ä"], ["shard-11", "shard-a1", "shard-1/"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[ä-]", ["ä", "-"], ["a"]),
        (r"\*\[x", ["*[x"], ["a[x", "[x"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a\nb", ["a\nb"], ["a", "a\n"]),
        ("a", ["a"], ["a\n", "b"]),
    ],
)
def test_meaning(pattern: str, yes: list[str], no: list[str]) -> None:
    globs = Globs.compile([pattern])
    for path in yes:
        assert globs.matches(path.encode("utf-8", "surrogateescape")), path
    for path in no:
        assert not globs.matches(path.encode("utf-8", "surrogateescape")), path


@pytest.mark.parametrize(
    "pattern", ["a//b", "", "/", ".", "../a", "a/./b", "**.tar", "a**/b", "[a", "a\\", "[z-a]", "[+-9]", "a\0"]
)
def test_refused(pattern: str) -> None:
    with pytest.raises(FieldError) as refused:
        Globs.compile([pattern])
    assert refused.value.accepted


def test_selection() -> None:
    everything = Selection.compile([], [])
    assert everything.keeps(b"a/b")
    some = Selection.compile(["**/*.tar", "labels.json"], ["broken/**"])
    assert some.keeps(b"x/a.tar")
    assert some.keeps(b"labels.json")
    assert not some.keeps(b"a.txt")
    assert not some.keeps(b"broken/a.tar")
    assert not Globs.compile([]).matches(b"a")


def naive(pattern: list[str], path: list[str]) -> bool:
    """The definition, by trying everything."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(path)
        return naive(pattern[1:], path) or (bool(path) and naive(pattern, path[1:]))
    return bool(path) and naive_component(pattern[0], path[0]) and naive(pattern[1:], path[1:])


def naive_component(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return naive_component(pattern[1:], name) or (bool(name) and naive_component(pattern, name[1:]))
    return bool(name) and pattern[0] in ("?", name[0]) and naive_component(pattern[1:], name[1:])


COMPONENT = st.one_of(st.just("**"), st.text("ab*?ä", min_size=1, max_size=5).filter(lambda text: "**" not in text))
NAME = st.text("abä", min_size=1, max_size=4)


@settings(max_examples=500, deadline=None)
@given(st.lists(COMPONENT, min_size=1, max_size=5), st.lists(NAME, min_size=1, max_size=5))
def test_against_a_naive_matcher(pattern: list[str], path: list[str]) -> None:
    assert Globs.compile(["/".join(pattern)]).matches("/".join(path).encode()) == naive(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 100 + "b", b"a" * 1000),
        ("**/a/" * 100 + "b", b"a/" * 450 + b"c"),
        ("**/*a*a*a*/" * 30 + "b", b"aaaa/" * 200 + b"c"),
        ("?*" * 200, b"a" * 1000 + b"/"),
    ],
)
def test_no_pattern_takes_exponential_time(pattern: str, path: bytes) -> None:
    globs = Globs.compile([pattern])
    started = time.process_time()
    assert not globs.matches(path)
    assert time.process_time() - started < 1  # milliseconds in truth; years without atomic groups
