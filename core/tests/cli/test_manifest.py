"""`stoker manifest`: a real generation on disk, by name, by digest and as a file; no node runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import ManifestSource
from stoker.sources.base import ObjectEntry

SOURCE = ManifestSource("train", "s3://bucket/", "/", "s3://host/bucket", b"")
NS = 10**9


def build(folder: Path, keys: dict[bytes, str], age: int) -> str:
    """One generation of objects with these etags, so many seconds old; its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    with ManifestBuilder([SOURCE], str(folder)) as builder:
        builder.add(0, [ObjectEntry(key, len(key), etag, 86_400 * NS) for key, etag in keys.items()])
        built = builder.finish()
    os.utime(built.path, (1_000_000 - age, 1_000_000 - age))
    return str(built.digest)


@pytest.fixture
def generations(place: Path) -> tuple[str, str]:
    """Two of the DataSet default/imagenet, older and newer."""
    folder = place / "state" / "manifests" / "default.imagenet"
    older = build(folder, {b"a/1": "x", b"a/2": "x", b"gone": "x"}, 20)
    newer = build(folder, {b"a/1": "x", b"a/2": "y", b"new": "x", b"b//c": "x", b"caf\xe9\n": "x"}, 10)
    return older, newer


@pytest.mark.parametrize("name", ["imagenet", "default/imagenet"])
def test_show_the_newest(stoker: Callable[..., Any], generations: tuple[str, str], name: str) -> None:
    done = stoker("manifest", "show", name)
    assert (done.code, done.err) == (0, "")
    assert generations[1] in done.out
    assert "4 files, 2 directories" in done.out
    assert "train: s3://bucket/ at /" in done.out
    assert "hidden     1 EmptyComponent" in done.out
    assert "             3  1970-01-02 00:00:00Z  a/1\n" in done.out
    assert "caf\\xe9\\x0a\n" in done.out


def test_show_an_older_one_by_its_digest(stoker: Callable[..., Any], generations: tuple[str, str]) -> None:
    assert generations[0] in stoker("manifest", "show", f"imagenet@{generations[0][:8]}").out


def test_show_hidden_keys(stoker: Callable[..., Any], generations: tuple[str, str]) -> None:
    assert stoker("manifest", "show", "imagenet", "--hidden").out.endswith("EmptyComponent       train: b//c\n")


def test_show_as_lines_of_json(place: Path, stoker: Callable[..., Any], generations: tuple[str, str]) -> None:
    path = place / "state" / "manifests" / "default.imagenet" / f"{generations[1]}.manifest"
    lines = [json.loads(line) for line in stoker("manifest", "show", path, "--json").out.splitlines()]
    assert lines[0]["generation"] == generations[1]
    assert lines[0]["files"] == len(lines) - 1 == 4
    assert lines[1]["path"] == "a/1"


def test_show_a_part(stoker: Callable[..., Any], generations: tuple[str, str]) -> None:
    done = stoker("manifest", "show", "imagenet", "--limit", "1", "--path", "a/*")
    assert "a/1" in done.out
    assert "a/2" not in done.out
    assert done.out.endswith("... the first 1 files; --limit 0 shows all\n")


def test_diff(stoker: Callable[..., Any], generations: tuple[str, str]) -> None:
    expected = "~ a/2  3 -> 3\n+ caf\\xe9\\x0a  5\n- gone  4\n+ new  3\n2 added, 1 removed, 1 changed\n"
    assert stoker("manifest", "diff", "imagenet").out == expected
    older, newer = generations
    assert stoker("manifest", "diff", f"imagenet@{older}", f"imagenet@{newer}").out == expected
    assert stoker("manifest", "diff", "imagenet", "imagenet").out == "0 added, 0 removed, 0 changed\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "cifar"), "FileNotFound"),
        (("show", "no.manifest"), "FileNotFound"),
        (("diff", "cifar"), "FileNotFound"),
        (("show", "broken.manifest"), "ManifestCorrupt"),
    ],
)
def test_what_is_not_there(place: Path, stoker: Callable[..., Any], arguments: tuple[str, str], reason: str) -> None:
    (place / "broken.manifest").write_bytes(b"not a manifest")
    done = stoker("manifest", *arguments)
    assert done.code in (1, 2)
    assert done.err.startswith(f"{reason}: ")
    assert done.err.count("\n") == 1
