"""An ordinary user, through fusermount3: own folders by the XDG rules, a mount, reads, an end that leaves nothing.

What the commands say to users without rights is in test_cli.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servers.node import STOKER, Node, alive, data_set, wait_for
from servers.scripted_store import ScriptedStore

pytestmark = pytest.mark.fuse

USER = 65534


@dataclass
class User:
    """A user with a home folder. The only right beyond: to read this interpreter, wherever it is installed."""

    home: Path
    env: dict[str, str]

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
        return subprocess.run(
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *reading, *command],
            env=self.env,
            cwd="/",
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def stoker(self, *arguments: str, stdin: str = "") -> str:
        """A command that must succeed: its output."""
        done = self.run(*STOKER, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr + self.log()
        return done.stdout

    def mount(self, document: dict[str, Any], name: str = "data") -> Path:
        mountpoint = self.folder(name)
        self.stoker("mount", "-f", "-", str(mountpoint), stdin=json.dumps(document))
        return mountpoint

    def read(self, path: Path) -> bytes:
        """As this user: the mount is for nobody else, not even root."""
        return subprocess.run(
            ["cat", str(path)], user=USER, group=USER, extra_groups=[], check=True, capture_output=True, timeout=60
        ).stdout

    def folder(self, name: str) -> Path:
        path = self.home / name
        path.mkdir(exist_ok=True)
        os.chown(path, USER, USER)
        return path

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stoker("status", "--json"))
        return found

    def log(self) -> str:
        return "".join(path.read_text()[-4000:] for path in self.home.rglob("node.log"))

    def processes(self) -> list[int]:
        """Everything that runs with this home folder."""
        needle = f"HOME={self.home}\0".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if needle in (entry / "environ").read_bytes() and alive(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


def mounted_below(folder: Path) -> bool:
    return str(folder) in Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def user() -> Iterator[User]:
    """/dev/fuse is as udev sets it up where there is one: everybody may open it."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("FUSE is not allowed here")
    if shutil.which("fusermount3") is None:
        pytest.skip("fusermount3 is not installed")
    home = Path(tempfile.mkdtemp(prefix="stk-"))
    os.chown(home, USER, USER)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "STOKER_", "XDG_"))}
    found = User(home, {**inherited, "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"})
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    try:
        yield found
    finally:
        clean_up(found)
        os.chmod("/dev/fuse", mode)


def clean_up(user: User) -> None:
    user.run(*STOKER, "node", "--stop")
    for pid in user.processes():
        os.kill(pid, signal.SIGKILL)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(str(user.home)):
            subprocess.run(["umount", "-l", line.split()[4]], check=False)
    shutil.rmtree(user.home)


@pytest.fixture
def document(scripted_store: ScriptedStore) -> dict[str, Any]:
    """A bucket that everybody may read."""
    scripted_store.put("train/a.bin", os.urandom(5_000_000))
    scripted_store.put("labels.csv", b"a,1\n")
    return data_set("cats", scripted_store.source(), identity={"mode": "None"})


def content(store: ScriptedStore, key: str) -> bytes:
    return store.objects[key.encode()].data


def test_the_main_job_in_folders_of_the_xdg_rules(
    user: User, document: dict[str, Any], scripted_store: ScriptedStore
) -> None:
    xdg = {name: user.folder(name.lower()) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")}
    user.env |= {name: str(path) for name, path in xdg.items()} | {"STOKER_IDLE_EXIT_SECONDS": "3"}
    root = user.mount(document)
    assert user.read(root / "train/a.bin") == content(scripted_store, "train/a.bin")
    owners = user.run("stat", "-c", "%u %g %a", str(root / "labels.csv"), str(root / "train")).stdout
    assert owners == f"{USER} {USER} 444\n{USER} {USER} 555\n"
    (mount,) = user.status()["mounts"]
    assert (mount["files"], mount["cachedFiles"], mount["passthrough"]) == (2, 1, False)
    for name, path in xdg.items():
        info = (path / "stoker").stat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (USER, 0o700), name

    assert user.stoker("unmount", str(root)) == f"unmounted {root}\n"
    wait_for(lambda: not user.processes(), what="the node ends after its last mount")
    assert not mounted_below(user.home)
    assert os.listdir(root) == []
    assert not (xdg["XDG_RUNTIME_DIR"] / "stoker" / "admin.sock").exists()


def test_without_xdg_variables_the_folders_are_below_home(
    user: User, document: dict[str, Any], scripted_store: ScriptedStore
) -> None:
    root = user.mount(document)
    assert user.read(root / "labels.csv") == b"a,1\n"
    for folder in (".local/state/stoker", ".cache/stoker"):
        assert (user.home / folder).stat().st_uid == USER
    user.stoker("node", "--stop")
    wait_for(lambda: not user.processes())
    assert not mounted_below(user.home)


def test_what_one_node_cached_the_next_one_has(
    user: User, document: dict[str, Any], scripted_store: ScriptedStore
) -> None:
    assert user.stoker("preload", "-f", "-", stdin=json.dumps(document)).startswith("preloaded cats: 2 files of 2")
    user.stoker("node", "--stop")
    wait_for(lambda: not user.processes())
    asked = scripted_store.count("train/a.bin")
    root = user.mount(document)
    assert user.read(root / "train/a.bin") == content(scripted_store, "train/a.bin")
    assert scripted_store.count("train/a.bin") == asked


def test_a_killed_process_of_the_node_is_not_seen_by_a_reader(
    user: User, document: dict[str, Any], scripted_store: ScriptedStore
) -> None:
    """A mount cannot be made again without rights: the descriptors that are kept are all there is."""
    root = user.mount(document)
    run = Node(user.home / ".local/state/stoker")
    for role in ("worker", "fetcher", "daemon"):
        for pid in run.pids(role):
            run.kill(pid)
        assert user.read(root / "train/a.bin") == content(scripted_store, "train/a.bin"), role
        assert user.run("ls", str(root)).stdout == "labels.csv\ntrain\n", role
    wait_for(lambda: user.run(*STOKER, "unmount", str(root)).returncode == 0, what="the daemon is back")
    assert not mounted_below(user.home)


def test_a_user_s_node_and_root_s_are_apart(
    user: User, node: Node, document: dict[str, Any], scripted_store: ScriptedStore
) -> None:
    os.chmod(node.root, 0o755)
    of_root = node.mount(document)
    of_user = user.mount(document)
    assert user.read(of_user / "labels.csv") == (of_root / "labels.csv").read_bytes() == b"a,1\n"
    assert [mount["mountpoint"] for mount in user.status()["mounts"]] == [str(of_user)]
    with pytest.raises(PermissionError):
        os.listdir(of_user)
    assert user.run(*STOKER, "unmount", str(of_root)).returncode == 1
    assert (of_root / "labels.csv").read_bytes() == b"a,1\n"
