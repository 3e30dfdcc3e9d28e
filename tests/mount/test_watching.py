"""Metrics, health and `why-slow` of a real node: what a user sees while a store is slow or processes die."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from servers.mounts import mount
from servers.node import Node, data_set, running_node, wait_for
from servers.scenarios import drips, thinks
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

MIB = 1 << 20
Found = dict[str, float]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def watched(scratch: Path) -> Iterator[Node]:
    """A node with metrics on a port."""
    with running_node(scratch, STOKER_FUSE_WORKERS="2", STOKER_METRICS_PORT=str(free_port())) as node:
        yield node


def get(node: Node, path: str) -> tuple[int, str]:
    """By the port."""
    connection = http.client.HTTPConnection("127.0.0.1", int(node.settings["STOKER_METRICS_PORT"]), timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = response.status, response.read().decode()
    connection.close()
    return answer


def metrics(node: Node) -> Found:
    """By name with labels, as they are served."""
    lines = (line.rpartition(" ") for line in get(node, "/metrics")[1].splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def counters(node: Node) -> Found:
    return {key: value for key, value in metrics(node).items() if re.search(r"_(total|bucket|sum|count)($|{)", key)}


def not_less(before: Found, after: Found) -> list[tuple[str, float, float | None]]:
    """What went back."""
    return [(key, value, after.get(key)) for key, value in before.items() if after.get(key, -1.0) < value]


def why_slow(node: Node, name: str = "data") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(node.ok("why-slow", name, "--json"))
    return answer


def test_reads_are_counted_by_where_they_came_from(watched: Node, scripted_store: ScriptedStore) -> None:
    scripted_store.put("a", bytes(3 * MIB))
    (mount(watched, scripted_store) / "a").read_bytes()
    found = metrics(watched)
    nbytes = [
        found[f'stoker_read_bytes_total{{data_set="default/data",from="{where}"}}'] for where in ("cache", "source")
    ]
    assert sum(nbytes) == 3 * MIB
    assert nbytes[1] > 0, "the first bytes were waited for"
    assert found['stoker_source_bytes_total{data_set="default/data"}'] == 3 * MIB
    assert found['stoker_source_requests_total{data_set="default/data",status="2xx"}'] == scripted_store.count(
        "a", "GET"
    )
    assert found["stoker_source_first_byte_seconds_count"] == scripted_store.count("a", "GET")
    assert found['stoker_listing_requests_total{status="2xx"}'] >= 1
    assert found['stoker_fuse_requests_total{op="read"}'] >= 3 * MIB / (1 << 20)
    assert found["stoker_mounts"] == 1
    again = mount(watched, scripted_store, "again")
    (again / "a").read_bytes()
    found = metrics(watched)
    assert found['stoker_read_bytes_total{data_set="default/again",from="cache"}'] == 3 * MIB
    assert found["stoker_cache_read_seconds_count"] > 0


def test_counts_never_go_back(watched: Node, scripted_store: ScriptedStore) -> None:
    for name in "abcdef":
        scripted_store.put(name, bytes(MIB))
    root = mount(watched, scripted_store)
    (root / "a").read_bytes()
    before = counters(watched)
    for role, name in (("worker", "b"), ("fetcher", "c"), ("daemon", "d"), ("supervisor", "e")):
        for pid in watched.pids(role):
            watched.kill(pid)
        assert (root / name).read_bytes() == bytes(MIB)
        wait_for(lambda role=role: watched.pids(role), what=role)
        wait_for(lambda: get_or_none(watched) == 200, what="healthy again")
        after = counters(watched)
        assert not not_less(before, after), role
        before = after
    assert before['stoker_process_restarts_total{role="worker"}'] == 2
    assert before['stoker_process_restarts_total{role="fetcher"}'] == 1
    assert before['stoker_process_restarts_total{role="daemon"}'] == 1
    assert before['stoker_process_restarts_total{role="supervisor"}'] == 1
    watched.ok("unmount", str(root))
    after = counters(watched)
    assert not not_less(before, after), "unmounted"
    assert after['stoker_source_bytes_total{data_set="default/data"}'] == 5 * MIB
    root = mount(watched, scripted_store)
    assert (root / "f").read_bytes() == bytes(MIB)
    assert counters(watched)['stoker_source_bytes_total{data_set="default/data"}'] == 6 * MIB
    for pid in watched.pids("daemon"):
        watched.kill(pid)
    wait_for(lambda: get_or_none(watched) == 200, what="healthy again")
    assert counters(watched)['stoker_source_bytes_total{data_set="default/data"}'] == 6 * MIB, "of ended mounts, too"


def get_or_none(node: Node) -> int | None:
    try:
        return get(node, "/healthz")[0]
    except OSError:
        return None


def test_the_port_serves_metrics_and_health_alone(watched: Node, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", b"1")
    mount(watched, scripted_store)
    assert get(watched, "/healthz") == (200, '{"healthy": true, "problems": []}')
    for path in ("/v1/status", "/v1/version", "/v1/why-slow?name=data", "/"):
        assert get(watched, path)[0] == 404
    assert watched.api("GET", "/healthz")["healthy"]
    other = watched.root / "other"
    taken = Node(other, dict(watched.settings))
    (other / "data").mkdir(parents=True)
    document = json.dumps(data_set("data", scripted_store.source()))
    done = taken.run("mount", "-f", "-", str(other / "data"), stdin=document)
    assert done.returncode == 1
    assert "NodeStartFailed" in done.stderr
    assert "STOKER_METRICS_PORT" in done.stderr


@pytest.mark.slow
def test_a_worker_that_hangs_is_not_healthy(watched: Node, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", b"1")
    mount(watched, scripted_store)
    pid = watched.pids("worker")[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: get(watched, "/healthz")[0] == 503, what="not healthy")
        assert "is silent" in get(watched, "/healthz")[1]
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: get(watched, "/healthz")[0] == 200, what="healthy again")


def test_a_new_daemon_hears_of_reads(node: Node, scripted_store: ScriptedStore) -> None:
    """Workers connect to it, whatever became of the one before."""
    scripted_store.put("f", bytes(100_000))
    root = mount(node, scripted_store)
    before = node.api("GET", "/v1/version")["pid"]
    node.kill(before)
    wait_for(lambda: said(node).get("pid", before) != before, what="another daemon")
    assert (root / "f").read_bytes() == bytes(100_000)
    assert why_slow(node)["figures"]["reads"] > 0


def said(node: Node) -> dict[str, Any]:
    """Who the daemon is; nothing while there is none."""
    try:
        answer: dict[str, Any] = node.api("GET", "/v1/version")
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return answer


def test_a_slow_first_byte_is_the_store_and_a_slow_body_the_network(node: Node, scripted_store: ScriptedStore) -> None:
    for number in range(5):
        scripted_store.put(f"store/{number}", bytes(100_000))
        scripted_store.on(f"store/{number}", thinks(0.4))
    for number in range(2):
        scripted_store.put(f"link/{number}", bytes(100_000))
        scripted_store.on(f"link/{number}", drips(100_000))
    for name, count in (("store", 5), ("link", 2)):
        root = node.mount(data_set(name, scripted_store.source(f"{name}/")), name)
        for number in range(count):
            (root / f"{number}").read_bytes()
    answer = why_slow(node, name="store")
    assert (answer["verdict"]["limit"], answer["verdict"]["change"]) == ("store", "preload"), answer
    assert answer["parts"]["store"]["percent"] > 75, answer
    assert answer["parts"]["store"]["seconds"] == pytest.approx(2, abs=0.5)
    assert 400 <= answer["figures"]["firstByteMs"] < 600
    answer = why_slow(node, name="link")
    assert (answer["verdict"]["limit"], answer["verdict"]["change"]) == ("network", "preload"), answer
    assert answer["parts"]["network"]["percent"] > 75, answer
    assert answer["figures"]["bytesPerSecondOfARequest"] == pytest.approx(100_000, rel=0.4)


def test_a_reader_that_takes_its_time_is_its_own_limit(node: Node, scripted_store: ScriptedStore) -> None:
    for number in range(10):
        scripted_store.put(f"f{number}", bytes(100_000))
    root = mount(node, scripted_store)
    for number in range(10):
        (root / f"f{number}").read_bytes()
        time.sleep(0.2)  # the work of the reader, not a wait of the test
    answer = why_slow(node)
    assert (answer["verdict"]["limit"], answer["verdict"]["change"]) == ("application", ""), answer
    assert answer["parts"]["application"]["percent"] > 70, answer


@pytest.mark.slow
def test_a_cache_that_is_too_small_is_named(scratch: Path, scripted_store: ScriptedStore) -> None:
    names = [f"f{number:02}" for number in range(24)]
    for name in names:
        scripted_store.put(name, os.urandom(2 * MIB))
        scripted_store.on(name, thinks(0.05))
    port = str(free_port())
    settings = {"STOKER_CACHE_QUOTA": "32Mi", "STOKER_FUSE_WORKERS": "2", "STOKER_METRICS_PORT": port}
    with running_node(scratch, **settings) as node:

        def read_all() -> None:
            root = mount(node, scripted_store)
            for name in names:
                (root / name).read_bytes()
            node.ok("unmount", str(root))

        read_all()
        wait_for(lambda: metrics(node)['stoker_evictions_total{reason="Lru"}'] > 0)
        for _ in range(2):
            read_all()  # a new mount: the kernel has forgotten
        found = metrics(node)
        answer = why_slow(node)
    assert found['stoker_fetched_again_bytes_total{data_set="default/data"}'] > 8 * MIB
    assert found['stoker_evicted_bytes_total{reason="Lru"}'] >= 16 * MIB
    assert found['stoker_cache_used_bytes{tier="0"}'] <= 32 * MIB
    assert answer["verdict"]["change"] == "cache.quota", answer
    assert answer["figures"]["fetchedAgainBytes"] > 8 * MIB


@pytest.mark.slow
def test_a_store_that_hangs_shows_while_it_does(node: Node, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", bytes(100_000))
    scripted_store.on("f", thinks(8))
    root = mount(node, scripted_store)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit((root / "f").read_bytes)
        answer = wait_for(lambda: (a := why_slow(node))["parts"]["store"]["seconds"] > 2 and a)
        assert not reading.done(), "it is said before the read ends"
        assert answer["verdict"]["limit"] == "store"
        assert reading.result() == bytes(100_000)


def test_a_name_or_a_mountpoint_will_do_and_others_are_refused(node: Node, scripted_store: ScriptedStore) -> None:
    scripted_store.put("f", b"1")
    (mount(node, scripted_store, "files") / "f").read_bytes()
    for name in ("files", "default/files", "./files", str(node.root / "files")):
        said = node.ok("why-slow", name, "--since", "90s")
        assert said.startswith("default/files, "), name
        assert "application" in said
    for arguments, word in ((("nothing",), "NotMounted"), (("files", "--since", "2h"), "InvalidValue")):
        done = node.run("why-slow", *arguments)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith(f"{word}: "), done.stderr
    node.ok("unmount", str(node.root / "files"))


def test_the_commands_of_the_page_do_what_it_says(scratch: Path, scripted_store: ScriptedStore) -> None:
    page = (Path(__file__).parents[2] / "docs" / "WATCHING.md").read_text()
    commands = re.findall(r"^((?:STOKER\S+ )*(?:stoker|curl) .*)$", page, re.MULTILINE)
    scripted_store.put("f", b"1")
    port = free_port()
    with running_node(scratch, STOKER_FUSE_WORKERS="2") as node:

        def typed(command: str) -> list[str]:
            line = command.replace("9464", str(port)).replace("/run/stoker/", f"{node.root}/run/")
            return ["sh", "-c", re.sub(r"(^| )stoker ", rf"\1{sys.executable} -m stoker.cli.main ", line)]

        start = next(command for command in commands if "stoker node" in command)
        where: dict[str, Any] = {"env": node.env, "cwd": node.root}
        with subprocess.Popen(typed(start), **where, stderr=subprocess.DEVNULL):
            wait_for(lambda: said(node), what="the node of the page")
            (node.root / "data").mkdir()
            document = json.dumps(data_set("imagenet", scripted_store.source()))
            node.ok("mount", "-f", "-", "./data", stdin=document)
            (node.root / "data" / "f").read_bytes()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                ran = [answer.read().decode()]
            others = [command for command in commands if command != start]
            ran += [subprocess.check_output(typed(command), **where, text=True) for command in others]
            node.ok("node", "--stop")
    assert len(ran) == 4
    assert sum("stoker_reads_total" in text for text in ran) == 2
    assert sum(text.startswith("default/imagenet, ") for text in ran) == 2
