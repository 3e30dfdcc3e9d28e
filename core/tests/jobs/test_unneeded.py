"""What only an old generation has, found by a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from stoker.cache.layout import object_id
from stoker.manifest.build import ManifestBuilder
from stoker.manifest.format import ManifestSource
from stoker.sources.base import ObjectEntry

ORIGIN = "s3://host/bucket"
Listed = dict[bytes, tuple[int, str]]
"""Key -> size, etag."""


def listed(folder: Path, keys: Listed, origin: str = ORIGIN) -> str:
    source = ManifestSource("s", "s3://bucket/", "/", origin, b"", "s3://bucket/")
    with ManifestBuilder([source], str(folder)) as builder:
        builder.add(0, [ObjectEntry(key, size, etag, 1) for key, (size, etag) in keys.items()])
        return builder.finish().path


def unneeded(old: str, *others: str) -> set[str]:
    order = json.dumps({"old": old, "others": others}) + "\n"
    command = [sys.executable, "-m", "stoker.jobs.unneeded"]
    done = subprocess.run(command, input=order, capture_output=True, text=True, timeout=60, check=True)
    *batches, last = map(json.loads, done.stdout.splitlines())
    assert last == {"state": "done"}
    return {oid for batch in batches for oid in batch["oids"]}


def ids(keys: Listed) -> set[str]:
    return {object_id(ORIGIN, key, etag, size).hex() for key, (size, etag) in keys.items()}


OLD: Listed = {b"stays": (1, "a"), b"gone": (2, "b"), b"modified": (3, "c"), b"d/gone": (4, "d"), b"no-etag": (5, "")}
NEW: Listed = {b"stays": (1, "a"), b"modified": (3, "x"), b"new": (9, "n")}


def test_what_was_removed_or_modified(tmp_path: Path) -> None:
    found = unneeded(listed(tmp_path, OLD), listed(tmp_path, NEW))
    assert found == ids({key: OLD[key] for key in (b"gone", b"modified", b"d/gone")})


def test_not_what_another_generation_has_that_is_mounted(tmp_path: Path) -> None:
    mounted = listed(tmp_path, {b"gone": OLD[b"gone"], b"modified": (3, "y")})
    found = unneeded(listed(tmp_path, OLD), listed(tmp_path, NEW), mounted)
    assert found == ids({key: OLD[key] for key in (b"modified", b"d/gone")})


def test_hidden_objects_as_well(tmp_path: Path) -> None:
    old = {b"a//hidden": (1, "h"), b"a//stays": (2, "s"), b"b": (3, "b"), b"c": (4, "c")}
    new = {b"a//stays": (2, "s"), b"b": (3, "b"), b"b/now hides b": (1, "z"), b"c": (4, "c")}
    assert unneeded(listed(tmp_path, old), listed(tmp_path, new)) == ids({b"a//hidden": old[b"a//hidden"]})


def test_nothing_when_a_replica_was_listed(tmp_path: Path) -> None:
    assert unneeded(listed(tmp_path, OLD), listed(tmp_path, OLD, "s3://host/replica")) == set()


def test_of_many_in_batches(tmp_path: Path) -> None:
    many = {b"%05d" % number: (1, "e") for number in range(3000)}
    assert unneeded(listed(tmp_path, many), listed(tmp_path, {b"other": (1, "e")})) == ids(many)
