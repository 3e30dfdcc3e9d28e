"""What a store can do wrong, times what can be asked of it, on real mounts: the documented errno within its deadline,
or it heals; and nothing wrong is cached. Each fault has a file of its own, and all are asked at once.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers.mounts import mount, read_by_many, while_down
from servers.node import Node, data_set, wait_for
from servers.scenarios import (
    decompressing,
    drips,
    html_page,
    ignores_range,
    long_body,
    never_answers,
    other_total,
    redirects,
    redirects_to_itself,
    refuses,
    shifted,
    short_body,
    slow_down,
    stalls,
    truncated,
    with_headers,
    zipped,
)
from servers.scripted_store import Scenario, ScriptedStore

pytestmark = pytest.mark.fuse

MIB = 1 << 20
DEADLINE_S = 40
"""Retries and time in the queue together; far below what a mount gives a read by default."""

SETTINGS = {"retries": 1, "requestTimeout": "2s"}


@dataclass(frozen=True)
class Fault:
    """What the store does, what a reader is told, and the word that log and command say it with."""

    scenario: Scenario
    error: int
    reason: str
    passes: bool = True
    """Whether a reader who tries again does not see it."""


def eio(scenario: Scenario, reason: str) -> Fault:
    return Fault(scenario, errno.EIO, reason)


def faults(store: ScriptedStore) -> dict[str, Fault]:
    corrupt, unavailable = "CorruptResponse", "SourceUnavailable"
    return {
        "silence": eio(never_answers(), unavailable),
        "silence-in-body": eio(stalls(1000), unavailable),
        "drip": eio(drips(100), unavailable),
        "500": eio(refuses(500, "InternalError"), unavailable),
        "500-empty": eio(refuses(500), unavailable),
        "502-html": eio(html_page(502), unavailable),
        "cut-fin": eio(truncated(1000), corrupt),
        "cut-rst": eio(truncated(1000, reset=True), corrupt),
        "one-byte-less": eio(short_body(), corrupt),
        "one-byte-more": eio(long_body(), corrupt),
        "range-ignored": eio(ignores_range(store), corrupt),
        "range-beside": eio(shifted(16), corrupt),
        "range-missing": eio(with_headers(content_range=None), corrupt),
        "range-garbage": eio(with_headers(content_range="bytes x-y/z"), corrupt),
        "login-page": eio(html_page(), corrupt),
        "unzips": eio(decompressing(), corrupt),
        "zips": eio(zipped(), corrupt),
        "moved-301": eio(redirects("http://127.0.0.1:9/elsewhere", 301), unavailable),
        "moved-307": eio(redirects("http://127.0.0.1:9/elsewhere", 307), unavailable),
        "loop": eio(redirects_to_itself(), unavailable),
        "403": Fault(refuses(403, "AccessDenied"), errno.EACCES, "AccessDenied", passes=False),
        "404": Fault(refuses(404, "NoSuchKey"), errno.ESTALE, "SourceChanged", passes=False),
        "412": Fault(refuses(412, "PreconditionFailed"), errno.ESTALE, "SourceChanged", passes=False),
        "other-etag": Fault(with_headers(ETag='"other"'), errno.ESTALE, "SourceChanged", passes=False),
        "no-etag": Fault(with_headers(ETag=None), errno.ESTALE, "SourceChanged", passes=False),
        "other-size": Fault(other_total(7), errno.ESTALE, "SourceChanged", passes=False),
    }


def throttles(_: ScriptedStore) -> dict[str, Fault]:
    """They slow down all that is asked of the store, so they are asked alone."""
    return {
        "503": eio(slow_down(), "Throttled"),
        "503-retry-after": eio(slow_down("1"), "Throttled"),
        "429": eio(refuses(429, "TooManyRequests", retry_after="1"), "Throttled"),
    }


Kinds = Callable[[ScriptedStore], dict[str, Fault]]
Access = Callable[[Path, int], list[tuple[int, bytes]]]


def whole(path: Path, _: int) -> list[tuple[int, bytes]]:
    return [(0, path.read_bytes())]


def part(path: Path, size: int) -> list[tuple[int, bytes]]:
    with open(path, "rb", buffering=0) as file:
        return [(size - 70_001, os.pread(file.fileno(), 4096, size - 70_001))]


def stream(path: Path, _: int) -> list[tuple[int, bytes]]:
    """From its begin to its end in steps, so that reading ahead sets in."""
    with open(path, "rb", buffering=0) as file:
        pieces: list[tuple[int, bytes]] = []
        offset = 0
        while piece := os.pread(file.fileno(), 128 << 10, offset):
            pieces.append((offset, piece))
            offset += len(piece)
        return pieces


ACCESSES: dict[str, tuple[Access, int]] = {
    "small": (whole, 100_001),
    "part": (part, 5 * MIB + 17),
    "stream": (stream, 5 * MIB + 17),
}


def put(store: ScriptedStore, found: dict[str, Fault], size: int) -> dict[str, bytes]:
    contents = {name: os.urandom(size) for name in found}
    for name, data in contents.items():
        store.put(name, data)
    return contents


def asked(access: Access, path: Path, data: bytes) -> int:
    """The errno, or 0 when every byte that came is right."""
    began = time.monotonic()
    try:
        pieces = access(path, len(data))
    except OSError as error:
        assert time.monotonic() - began < DEADLINE_S, path.name
        return error.errno or -1
    assert pieces
    assert all(piece and piece == data[at : at + len(piece)] for at, piece in pieces), path.name
    return 0


def ask_all(access: Access, root: Path, contents: dict[str, bytes]) -> dict[str, int]:
    with ThreadPoolExecutor(len(contents)) as pool:
        found = pool.map(lambda name: asked(access, root / name, contents[name]), contents)
        return dict(zip(contents, found, strict=True))


def check_cache(node: Node, store: ScriptedStore, contents: dict[str, bytes], down: list[str], name: str) -> None:
    """With the store off: what is said to be cached whole is right, and of the others no byte is wrong."""
    down.append("off")
    root = mounted(node, store, name)
    said = {key: os.getxattr(root / key, "user.stoker.cached") for key in contents}
    found = ask_all(whole, root, contents)
    assert [key for key, percent in said.items() if percent == b"100" and found[key]] == []
    down.clear()


def mounted(node: Node, store: ScriptedStore, name: str = "data") -> Path:
    return mount(node, store, name, mount=SETTINGS)


def while_off(down: list[str], fault: Scenario) -> Scenario:
    """The fault until `down` is emptied; everything fails while the store is off."""
    off, broken = refuses(403, "AccessDenied"), while_down(down, fault)
    return lambda request, right: off(request, right) if "off" in down else broken(request, right)


@pytest.mark.parametrize(("kind", "kinds"), [*((kind, faults) for kind in ACCESSES), ("part", throttles)])
def test_a_fault_that_stays_has_its_error_and_caches_nothing_wrong(
    node: Node, scripted_store: ScriptedStore, kind: str, kinds: Kinds
) -> None:
    access, size = ACCESSES[kind]
    found = kinds(scripted_store)
    contents = put(scripted_store, found, size)
    down = ["bad"]
    for name, fault in found.items():
        scripted_store.on(name, while_off(down, fault.scenario))
    root = mounted(node, scripted_store)
    assert ask_all(access, root, contents) == {name: fault.error for name, fault in found.items()}
    log = node.log()
    assert [reason for reason in {fault.reason for fault in found.values()} if f'"{reason}"' not in log] == []
    check_cache(node, scripted_store, contents, down, "off")
    wait_for(lambda: not any(ask_all(whole, root, contents).values()), what="the same mount heals")
    assert read_by_many(mounted(node, scripted_store, "healed"), contents) == contents
    check_cache(node, scripted_store, contents, down, "again")


@pytest.mark.parametrize("kind", ACCESSES)
def test_a_fault_that_passes_is_not_seen(node: Node, scripted_store: ScriptedStore, kind: str) -> None:
    access, size = ACCESSES[kind]
    found = {n: f for kinds in (faults, throttles) for n, f in kinds(scripted_store).items() if f.passes}
    contents = put(scripted_store, found, size)
    down: list[str] = []
    for name, fault in found.items():
        scripted_store.on(name, fault.scenario, times=1)
        scripted_store.on(name, while_off(down, fault.scenario))
    root = mounted(node, scripted_store)
    assert ask_all(access, root, contents) == dict.fromkeys(contents, 0)
    assert all(scripted_store.count(name) > 1 for name in contents)
    check_cache(node, scripted_store, contents, down, "off")


@pytest.mark.parametrize("kinds", [faults, throttles])
def test_a_preload_names_each_file_that_failed_and_the_next_one_loads_it(
    node: Node, scripted_store: ScriptedStore, kinds: Kinds
) -> None:
    found = kinds(scripted_store)
    contents = put(scripted_store, found, 300_001)
    down = [True]
    for name, fault in found.items():
        scripted_store.on(name, while_down(down, fault.scenario))
    document = data_set("data", scripted_store.source(), mount=SETTINGS)
    done = node.run("preload", "-f", "-", stdin=json.dumps(document), timeout=100)
    assert done.returncode in (1, 3), done
    (job,) = node.api("GET", "/v1/status")["jobs"]
    assert job["progress"]["filesDone"] == 0
    said = {failure["path"]: failure["reason"] for failure in job["failures"]}
    assert said == {name: fault.reason for name, fault in found.items() if name in said}
    assert len(said) == min(len(found), 10) or len(said) == len(found)
    assert all(f"{reason}: {name}: " in done.stderr for name, reason in list(said.items())[:10])
    down.clear()
    wait_for(lambda: node.run("preload", "-f", "-", stdin=json.dumps(document)).returncode == 0, what="it heals")
    asked_before = len(scripted_store.requests)
    assert read_by_many(mounted(node, scripted_store), contents) == contents
    assert [r for r in scripted_store.requests[asked_before:] if not r.is_list] == []
