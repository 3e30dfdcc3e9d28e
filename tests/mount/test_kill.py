"""kill -9 of any process of ours under readers: no read fails, no byte is wrong (docs/design/processes.md, fuse.md)."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.kills import VICTIMS, choose, kill_at_once, supervisor_of, template_of, whole
from servers.node import STOKER, Node, alive, data_set, processes_of, running_node, wait_for
from servers.scenarios import never_answers
from servers.scripted_store import ScriptedStore
from servers.stores import Store

pytestmark = pytest.mark.fuse

SMALL = 300
LARGE_BYTES = 48 << 20


def fill(store: Store) -> dict[str, str]:
    """Many small objects and a large one: path -> sha256."""
    contents = {f"small/{number:04d}": os.urandom(20_000 + number * 37) for number in range(SMALL)}
    contents["large.bin"] = os.urandom(LARGE_BYTES)
    for key, data in contents.items():
        store.put(key, data)
    return {key: hashlib.sha256(data).hexdigest() for key, data in contents.items()}


def read_by_pread(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(1 << 18):
            digest.update(data)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # the next reader asks us, not the kernel
    return digest.hexdigest()


class Readers:
    """Threads that read and list for ever and remember the first thing that went wrong."""

    def __init__(self, root: Path, digests: dict[str, str]) -> None:
        self.wrong: list[str] = []
        self.reads = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._loop, args=(work, root, digests), daemon=True)
            for work in (self._small, self._large, self._list)
            for _ in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a reader hangs"

    def _loop(self, work: Callable[[Path, dict[str, str]], None], root: Path, digests: dict[str, str]) -> None:
        while not self._stop.is_set() and not self.wrong:
            try:
                work(root, digests)
                self.reads += 1
            except (OSError, AssertionError) as error:
                self.wrong.append(f"{type(error).__name__}: {error}")

    def _small(self, root: Path, digests: dict[str, str]) -> None:
        key = f"small/{random.randrange(SMALL):04d}"
        assert read_by_pread(root / key) == digests[key], key

    def _large(self, root: Path, digests: dict[str, str]) -> None:
        assert read_by_pread(root / "large.bin") == digests["large.bin"], "large.bin"

    def _list(self, root: Path, _digests: dict[str, str]) -> None:
        assert len(os.listdir(root / "small")) == SMALL
        assert os.stat(root / "large.bin").st_size == LARGE_BYTES


def kill_one(node: Node, victim: str) -> None:
    pids = wait_for(lambda: VICTIMS[victim](node), what=f"no {victim} to kill")
    node.kill(random.choice(pids))


@pytest.mark.parametrize("policy", ["Cache", "WholeFile"])
@pytest.mark.parametrize("victim", list(VICTIMS))
def test_killing_one_role_again_and_again_fails_no_read(node: Node, bucket: Store, victim: str, policy: str) -> None:
    digests = fill(bucket)
    root = node.mount(data_set("ds", bucket.source(), cache={"policy": policy}))
    readers = Readers(root, digests)
    for _ in range(8):
        kill_one(node, victim)
        time.sleep(random.uniform(0.0, 0.2))
        wait_for(lambda: whole(node), what=f"the node is not whole again after its {victim} was killed")
    readers.stop()
    assert not readers.wrong, [*readers.wrong, node.log()[-3000:]]
    assert readers.reads > 10
    assert read_all(root, digests)


@pytest.mark.parametrize("also", [(), ("worker",)])
def test_supervisor_and_daemon_killed_at_once_fail_no_read(node: Node, bucket: Store, also: tuple[str, ...]) -> None:
    """A worker holds everything too, and starts the next supervisor."""
    digests = fill(bucket)
    root = node.mount(data_set("ds", bucket.source(), cache={"policy": "WholeFile"}))
    readers = Readers(root, digests)
    for _ in range(3):
        kill_at_once(choose(node, ["supervisor", "daemon", *also], random.Random()))
        wait_for(lambda: whole(node), 60, "the node is whole again")
        assert node.status()["mountpoint"] == str(root)
    readers.stop()
    assert not readers.wrong, [*readers.wrong, node.log()[-3000:]]
    assert read_all(root, digests)
    node.ok("unmount", str(root))
    assert not os.path.ismount(root)


def read_all(root: Path, digests: dict[str, str]) -> bool:
    return all(read_by_pread(root / key) == digest for key, digest in digests.items())


def test_a_mount_and_a_load_go_on_after_the_daemon_was_killed(node: Node, bucket: Store) -> None:
    digests = fill(bucket)
    root = node.mount(data_set("ds", bucket.source()))
    node.kill(node.pids("daemon")[0])
    assert read_all(root, digests)
    wait_for(lambda: whole(node))
    assert node.status()["mountpoint"] == str(root)
    node.ok("unmount", str(root))
    assert not os.path.ismount(root)


def cat(path: Path) -> subprocess.Popen[bytes]:
    """A reader in a process of its own."""
    return subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_reader_that_is_killed_while_nothing_serves_is_gone(node: Node, bucket: Store) -> None:
    """A killed process must not stay in D state, although no worker can answer it."""
    fill(bucket)
    root = node.mount(data_set("ds", bucket.source()))
    supervisor = supervisor_of(node)[0]
    for pid in template_of(node) + node.pids("worker"):
        os.kill(pid, 19)  # SIGSTOP: alive, so nobody starts another, and serving nothing
    reader = cat(root / "large.bin")
    time.sleep(1.0)
    for pid in node.pids("worker"):
        os.kill(pid, 9)  # now the stopped template cannot fork another; the supervisor holds the requests
    wait_for(lambda: not node.pids("worker"))
    time.sleep(0.5)
    reader.kill()
    wait_for(lambda: reader.poll() is not None, 10, "the killed reader is in D state")
    for pid in template_of(node):
        os.kill(pid, 18)
    wait_for(lambda: whole(node))
    assert alive(supervisor)
    assert hashlib.sha256((root / "small" / "0000").read_bytes()).hexdigest()


def test_killed_readers_are_gone_whoever_hears_of_it(node: Node, scripted_store: ScriptedStore) -> None:
    """The kernel tells any of those who serve a mount that a reader was killed, not the one that has its request."""
    keys = [f"f{number}" for number in range(8)]
    for key in keys:
        scripted_store.put(key, b"x" * 1000)
        scripted_store.on(key, never_answers())
    root = node.mount(data_set("ds", scripted_store.source(), cache={"policy": "WholeFile"}))
    readers = [cat(root / key) for key in keys]
    wait_for(lambda: all(scripted_store.count(key, "GET") for key in keys), what="every worker has some of the opens")
    templates = template_of(node)
    for pid in templates:
        os.kill(pid, 19)  # SIGSTOP: no worker can be started again
    for pid in node.pids("worker"):
        os.kill(pid, 9)
    for reader in readers[:4]:
        reader.kill()  # at once: the notice finds nobody who serves
    time.sleep(0.5)
    for reader in readers[4:]:
        reader.kill()
    wait_for(lambda: not any(reader.poll() is None for reader in readers), 5, "a killed reader is in D state")
    for pid in templates:
        os.kill(pid, 18)
    wait_for(lambda: whole(node))


def test_a_stopped_supervisor_is_replaced(node: Node, scripted_store: ScriptedStore) -> None:
    """It is alive and does nothing, no worker is there, and yet a killed reader is gone."""
    scripted_store.put("f", b"x" * 1000)
    scripted_store.on("f", never_answers())
    root = node.mount(data_set("ds", scripted_store.source(), cache={"policy": "WholeFile"}))
    reader = cat(root / "f")
    wait_for(lambda: scripted_store.count("f", "GET"), what="a worker has the open")
    (supervisor,) = supervisor_of(node)
    os.kill(supervisor, 19)
    kill_at_once(node.pids("worker"))
    reader.kill()
    wait_for(lambda: reader.poll() is not None, 20, "the killed reader is in D state")
    assert not alive(supervisor)
    wait_for(lambda: whole(node), 60)


def test_a_session_that_nobody_serves_ends_after_its_orphan_timeout(node: Node, bucket: Store) -> None:
    """Readers fail rather than hang for ever, and the mount can be made again."""
    fill(bucket)
    root = node.mount(data_set("ds", bucket.source(), mount={"orphanTimeout": "1s"}))
    template = template_of(node)[0]
    os.kill(template, 19)  # SIGSTOP: no worker can be started again
    for pid in node.pids("worker"):
        os.kill(pid, 9)
    reader = cat(root / "large.bin")
    wait_for(lambda: "session aborted" in node.log())
    os.kill(template, 18)
    assert reader.wait(10) == 1, "the read failed"
    wait_for(lambda: whole(node))
    node.mount(data_set("ds", bucket.source()))
    assert len(os.listdir(root / "small")) == SMALL


def test_a_load_that_died_with_the_daemon_does_not_keep_the_node(scratch: Path, scripted_store: ScriptedStore) -> None:
    """The command says so, and a node without mounts ends by itself as ever."""
    scripted_store.put("f", b"x" * 1000)
    scripted_store.on("f", never_answers())
    (scratch / "ds.yaml").write_text(json.dumps(data_set("ds", scripted_store.source())))
    with running_node(scratch, STOKER_IDLE_EXIT_SECONDS="2") as node:
        load = subprocess.Popen(
            [*STOKER, "preload", "-f", "ds.yaml"], env=node.env, cwd=scratch, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: scripted_store.count("f", "GET"), what="the load has begun")
        node.kill(node.pids("daemon")[0])
        _out, said = load.communicate(timeout=60)
        assert load.returncode == 1
        assert said.startswith("NodeNotRunning: ") or said.startswith("SourceNotFound: "), said
        wait_for(lambda: not processes_of(scratch), 30, "the node ends")
