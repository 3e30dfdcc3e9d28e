"""The `stoker` command on real mounts: what it does, what it refuses, what it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.node import STOKER, Node, data_set, processes_of, running_node, wait_for
from servers.scenarios import never_answers, only_in_region, refuses
from servers.scripted_store import BUCKET, ScriptedStore, running_store
from servers.seaweedfs import ADMIN, READER, SeaweedFS

pytestmark = pytest.mark.fuse


@pytest.fixture
def node() -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="stoker-", dir="/var/tmp"))
    with running_node(root, STOKER_IDLE_EXIT_SECONDS="0.5", AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s") as found:
        yield found
    shutil.rmtree(root)


@pytest.fixture
def origin(node: Node) -> Path:
    """A local source of three files."""
    folder = node.root / "origin"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "a.bin").write_bytes(os.urandom(100_000))
    (folder / "train" / "b.bin").write_bytes(os.urandom(3))
    (folder / "labels.csv").write_bytes(b"a,1\n")
    return folder


@pytest.fixture
def document(node: Node, origin: Path) -> dict[str, Any]:
    made = data_set("cats", {"uri": f"file://{origin}/"})
    (node.root / "dataset.yaml").write_text(json.dumps(made))
    (node.root / "data").mkdir()
    return made


class User:
    """An ordinary user: no rights but to read the files of this interpreter, wherever they are installed."""

    _ID = 65534

    def run(self, node: Node, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        home = self.folder(node, "home")
        own = {f"STOKER_{name}_DIR": str(home / name.lower()) for name in ("STATE", "RUN", "CACHE")}
        reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
        identity = [f"--reuid={self._ID}", f"--regid={self._ID}", "--clear-groups", *reading]
        return subprocess.run(
            [str(shutil.which("setpriv")), *identity, *STOKER, *arguments],
            env={**node.env, "HOME": str(home), **own, **env},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def folder(self, node: Node, name: str) -> Path:
        path = node.root / name
        path.mkdir(exist_ok=True)
        os.chown(path, self._ID, self._ID)
        return path


@pytest.fixture
def user(node: Node) -> Iterator[User]:
    """As on machines where udev has set up /dev/fuse: everyone may open it."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    os.chmod(node.root, 0o755)
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    yield User()
    os.chmod("/dev/fuse", mode)


def refused(node: Node, code: int, reason: str, *arguments: str, stdin: str = "") -> str:
    """The one line of a command that must fail."""
    done = node.run(*arguments, stdin=stdin)
    assert done.returncode == code, done
    assert done.stderr.startswith(f"{reason}: "), done.stderr
    assert done.stderr.count("\n") == 1
    assert " Next: " in done.stderr
    return done.stderr


def mounted_below(root: Path) -> bool:
    return str(root) in Path("/proc/self/mountinfo").read_text()


def ended(node: Node) -> bool:
    return not processes_of(node.root)


@pytest.mark.usefixtures("document")
def test_the_main_job(node: Node, origin: Path) -> None:
    assert "3 files" in node.ok("mount", "-f", "dataset.yaml", "./data")
    assert (node.root / "data/train/a.bin").read_bytes() == (origin / "train/a.bin").read_bytes()
    assert node.ok("preload", "-f", "dataset.yaml").startswith("preloaded cats: 3 files of 3, ")
    status = json.loads(node.ok("status", "--json"))
    (mount,) = status["mounts"]
    assert mount["mountpoint"] == str(node.root / "data")
    assert (mount["files"], mount["cachedFiles"], mount["cachedPercent"]) == (3, 3, 100.0)
    assert "default/cats" in node.ok("status")
    assert node.ok("unmount", "./data") == f"unmounted {node.root}/data\n"
    assert not mounted_below(node.root)
    assert os.listdir(node.root / "data") == []
    wait_for(lambda: ended(node), what="the node ends after its last mount")
    assert not (node.root / "run" / "admin.sock").exists()


@pytest.mark.usefixtures("document")
def test_the_same_command_again_changes_nothing(node: Node) -> None:
    first = node.ok("mount", "-f", "dataset.yaml", "data")
    before = json.loads(node.ok("status", "--json"))["mounts"]
    assert node.ok("mount", "-f", "dataset.yaml", "data") == first
    after = json.loads(node.ok("status", "--json"))["mounts"]
    assert [(m["id"], m["generation"]) for m in after] == [(m["id"], m["generation"]) for m in before]
    assert node.ok("preload", "-f", "dataset.yaml").startswith("preloaded cats: 3 files of 3")
    sent = json.loads(node.ok("status", "--json"))["mounts"][0]["bytesFromSource"]
    node.ok("preload", "-f", "dataset.yaml")
    assert json.loads(node.ok("status", "--json"))["mounts"][0]["bytesFromSource"] == sent, "only what is missing"
    node.ok("unmount", "data")
    assert node.ok("unmount", "data") == f"nothing is mounted at {node.root}/data\n"


@pytest.mark.usefixtures("document")
def test_preload_without_a_mount_and_of_a_part(node: Node) -> None:
    assert node.ok("preload", "-f", "dataset.yaml", "--path", "train/**").startswith("preloaded cats: 2 files of 2")
    wait_for(lambda: ended(node), what="the node ends after its last job")


def test_several_data_sets_of_one_file(node: Node, document: dict[str, Any]) -> None:
    other = {**document, "metadata": {"name": "dogs"}}
    text = f"{json.dumps(document)}\n---\n{json.dumps(other)}\n"
    out = node.ok("mount", "-f", "-", "data", stdin=text)
    assert out.count("mounted") == 2
    assert (node.root / "data/dogs/labels.csv").read_bytes() == b"a,1\n"
    assert node.ok("unmount", "data").count("unmounted") == 2
    assert not mounted_below(node.root)


@pytest.mark.usefixtures("document")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_foreground_unmounts_at_its_end(node: Node, number: int) -> None:
    command = [*STOKER, "mount", "-f", "dataset.yaml", "data", "--foreground"]
    with subprocess.Popen(command, env=node.env, cwd=node.root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("mounted default/cats")
        assert (node.root / "data/labels.csv").read_bytes() == b"a,1\n"
        child.send_signal(number)
        assert child.wait(20) == 0
    assert not mounted_below(node.root)


@pytest.fixture
def stubborn() -> Iterator[ScriptedStore]:
    """A store that answers for all but `b`, which it leaves hanging the first time."""
    with running_store() as store:
        for key in ("a", "b", "c"):
            store.put(f"k/{key}", os.urandom(50_000))
        store.on("k/b", never_answers(), times=1)
        yield store


def test_ctrl_c_keeps_what_is_done_and_again_loads_only_the_missing(node: Node, stubborn: ScriptedStore) -> None:
    document = json.dumps(data_set("slow", stubborn.source("k/")))
    (node.root / "slow.yaml").write_text(document)
    command = [*STOKER, "preload", "-f", "slow.yaml"]
    with subprocess.Popen(
        command, env=node.env, cwd=node.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        wait_for(lambda: loaded(node) == 2, what="all but the one that hangs")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 3, err
    assert out.startswith("preloaded slow: 2 files of 3, 97.7 KiB in ")
    assert "goes on from here" in err
    asked = stubborn.count("k/a", "GET"), stubborn.count("k/c", "GET")
    assert node.ok("preload", "-f", "slow.yaml").startswith("preloaded slow: 3 files of 3")
    assert (stubborn.count("k/a", "GET"), stubborn.count("k/c", "GET")) == asked


def loaded(node: Node) -> int:
    """Files that the job of this node has done."""
    jobs = json.loads(node.ok("status", "--json"))["jobs"]
    return int(jobs[0]["progress"]["filesDone"]) if jobs else 0


class TestCL01:
    """rclone#7304: the cause at once, nothing mounted, nothing left running."""

    @pytest.fixture(autouse=True)
    def _nothing_is_left(self, node: Node) -> Iterator[None]:
        begun = time.monotonic()
        yield
        assert time.monotonic() - begun < 30, "at once, not after a minute of waiting for the mount"
        assert ended(node)
        assert not mounted_below(node.root)

    @pytest.mark.usefixtures("document")
    def test_mountpoints(self, node: Node) -> None:
        (node.root / "file").write_text("")
        assert "/origin: " in refused(node, 1, "MountpointNotEmpty", "mount", "-f", "dataset.yaml", "data/../origin")
        refused(node, 1, "MountpointMissing", "mount", "-f", "dataset.yaml", "nowhere")
        refused(node, 1, "MountpointNotDirectory", "mount", "-f", "dataset.yaml", "file")
        (node.root / "origin" / "in").mkdir()
        refused(node, 1, "MountpointInsideSource", "mount", "-f", "dataset.yaml", "origin/in")

    @pytest.mark.usefixtures("document")
    def test_no_right_to_the_folder(self, node: Node, user: User) -> None:
        done = user.run(node, "mount", "-f", f"{node.root}/dataset.yaml", str(node.root / "data"))
        assert done.returncode == 1
        assert done.stderr.startswith("PermissionDenied: "), done.stderr
        assert done.stderr.count("\n") == 1

    @pytest.mark.usefixtures("document")
    def test_no_fusermount3(self, node: Node, user: User) -> None:
        data = user.folder(node, "mine")
        done = user.run(node, "mount", "-f", f"{node.root}/dataset.yaml", str(data), PATH=str(data))
        assert done.returncode == 1
        assert done.stderr.startswith("FuseUnavailable: fusermount3 is not installed"), done.stderr


class TestCL02:
    """rclone#5315: what is not there, or not allowed, is an error of the mount and not of the first read."""

    def test_a_folder_that_is_not_there(self, node: Node, document: dict[str, Any], origin: Path) -> None:
        document["spec"]["sources"][0]["uri"] = f"file://{origin}/nowhere/"
        refused(node, 1, "SourceNotFound", "mount", "-f", "-", "data", stdin=json.dumps(document))
        assert not mounted_below(node.root)

    def test_an_empty_folder(self, node: Node, document: dict[str, Any], origin: Path) -> None:
        (origin / "empty").mkdir()
        source = document["spec"]["sources"][0]
        source["uri"] = f"file://{origin}/empty/"
        refused(node, 1, "SourceEmpty", "mount", "-f", "-", "data", stdin=json.dumps(document))
        source["ignoreMissing"] = True
        node.ok("mount", "-f", "-", "data", stdin=json.dumps(document))
        assert os.listdir(node.root / "data") == []

    def test_an_endpoint_that_nobody_answers(self, node: Node, document: dict[str, Any]) -> None:
        document["spec"]["sources"] = [{"uri": "s3://bucket/", "endpoint": "http://127.0.0.1:9", "region": "us-east-1"}]
        document["spec"]["mount"] = {"retries": 1}
        document["spec"]["identity"] = {"mode": "None"}
        begun = time.monotonic()
        done = node.run("mount", "-f", "-", "data", stdin=json.dumps(document))
        assert time.monotonic() - begun < 30
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("SourceUnavailable: "), done.stderr  # after lines of progress
        assert not mounted_below(node.root)

    def test_a_bucket_that_is_not_there(self, node: Node, seaweedfs: SeaweedFS) -> None:
        line = refused_mount(node, seaweedfs, "no-such-bucket", "BucketNotFound")
        assert "s3://no-such-bucket/" in line

    def test_a_prefix_that_is_not_there(self, node: Node, seaweedfs: SeaweedFS) -> None:
        refused_mount(node, seaweedfs, f"{seaweedfs.new_bucket()}/nothing", "SourceEmpty")

    def test_a_bucket_without_the_right(self, node: Node, seaweedfs: SeaweedFS) -> None:
        bucket = seaweedfs.new_bucket("secret")
        seaweedfs.client().put_object(Bucket=bucket, Key="a", Body=b"a")
        node.settings.update(AWS_ACCESS_KEY_ID=READER[0], AWS_SECRET_ACCESS_KEY=READER[1])
        refused_mount(node, seaweedfs, bucket, "AccessDenied")

    def test_no_right_to_list_but_to_read(self, node: Node) -> None:
        """One object by its name needs no listing."""
        (node.root / "data").mkdir()
        with running_store() as store:
            store.put("k/known", b"bytes")
            store.on_list(refuses(403, "AccessDenied"))
            node.ok(
                "mount", "-f", "-", "data", stdin=json.dumps(data_set("ds", store.source("k/known"), type="uri_file"))
            )
            assert (node.root / "data/known").read_bytes() == b"bytes"
            node.ok("unmount", "data")

    def test_a_bucket_of_another_region(self, node: Node) -> None:
        """Its region is followed, and remembered: listing, one object and reads ask in a wrong one once."""
        (node.root / "data").mkdir()
        with running_store() as store:
            contents = {f"k/{number}": os.urandom(100_000) for number in range(4)}
            for key, data in contents.items():
                store.put(key, data)
                store.on(key, only_in_region("eu-north-1"))
            store.on_list(only_in_region("eu-north-1"))
            store.on("", only_in_region("eu-north-1"))
            document = data_set("ds", {"uri": f"s3://{BUCKET}/k/", "endpoint": store.endpoint})
            node.ok("mount", "-f", "-", "data", stdin=json.dumps(document))
            assert {key: (node.root / "data" / key[2:]).read_bytes() for key in contents} == contents
            wrong = [asked for asked in store.requests if "/us-east-1/s3/" in asked.headers["authorization"]]
            most = 1 + 2 * len(node.pids("fetcher"))
            assert 0 < len(wrong) <= most, "one for who lists; for each fetcher a read, and the question where to read"
            node.ok("unmount", "data")

    def test_a_wrong_key(self, node: Node, seaweedfs: SeaweedFS) -> None:
        bucket = seaweedfs.new_bucket()
        node.settings.update(AWS_ACCESS_KEY_ID=ADMIN[0], AWS_SECRET_ACCESS_KEY="wrong")
        line = refused_mount(node, seaweedfs, bucket, "AccessDenied")
        assert "wrong" not in line
        assert "wrong" not in node.log()


def refused_mount(node: Node, store: SeaweedFS, below: str, reason: str) -> str:
    """The mount of a bucket that must fail with this reason, by the keys of `node.settings`."""
    (node.root / "data").mkdir(exist_ok=True)
    if node.settings["AWS_ACCESS_KEY_ID"] == "k":
        node.settings.update(AWS_ACCESS_KEY_ID=ADMIN[0], AWS_SECRET_ACCESS_KEY=ADMIN[1])
    line = refused(node, 1, reason, "mount", "-f", "-", "data", stdin=json.dumps(bucket_data_set(store, below)))
    assert not mounted_below(node.root)
    return line


def bucket_data_set(store: SeaweedFS, below: str) -> dict[str, Any]:
    return data_set("ds", {"uri": f"s3://{below}/", "endpoint": store.endpoint, "region": "us-east-1"})


class TestCL04:
    """hf-mount#197: credentials are found where the official tools find them, and never shown."""

    def test_a_moved_file_and_an_empty_variable(self, node: Node, seaweedfs: SeaweedFS) -> None:
        bucket = seaweedfs.new_bucket()
        seaweedfs.client().put_object(Bucket=bucket, Key="a", Body=b"a")
        (node.root / "data").mkdir()
        keys = f"[work]\naws_access_key_id = {ADMIN[0]}\naws_secret_access_key = {ADMIN[1]}\n"
        (node.root / "moved").write_text(keys)
        node.settings.update(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_PROFILE="work")
        node.settings["AWS_SHARED_CREDENTIALS_FILE"] = str(node.root / "moved")
        node.ok("mount", "-f", "-", "data", stdin=json.dumps(bucket_data_set(seaweedfs, bucket)))
        assert (node.root / "data/a").read_bytes() == b"a"
        for pid in processes_of(node.root):
            assert ADMIN[1] not in Path(f"/proc/{pid}/cmdline").read_text()
        for path in node.root.rglob("*"):
            if path.is_file() and path.name != "moved":
                assert ADMIN[1].encode() not in path.read_bytes(), path

    def test_a_profile_that_is_not_there(self, node: Node, seaweedfs: SeaweedFS) -> None:
        node.settings.update(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_PROFILE="gone")
        (node.root / "data").mkdir()
        document = json.dumps(bucket_data_set(seaweedfs, seaweedfs.new_bucket()))
        line = refused(node, 1, "CredentialsMissing", "mount", "-f", "-", "data", stdin=document)
        assert "gone" in line

    @pytest.mark.usefixtures("document")
    def test_a_public_bucket_needs_none(self, node: Node) -> None:
        node.settings.update(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
        with running_store() as store:
            store.put("a", b"public")
            node.ok("mount", "-f", "-", "data", stdin=json.dumps(data_set("public", store.source())))
            assert (node.root / "data/a").read_bytes() == b"public"
            assert not any("authorization" in request.headers for request in store.of("a"))


class TestCL05:
    """ci-infra#834: a dead mount of our own is replaced; a live one of others is left alone."""

    @pytest.mark.usefixtures("document")
    def test_after_every_process_was_killed(self, node: Node) -> None:
        node.ok("mount", "-f", "dataset.yaml", "data")
        for pid in processes_of(node.root):
            os.kill(pid, signal.SIGSTOP)
        for pid in processes_of(node.root):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: ended(node))
        with pytest.raises(OSError, match=r"not connected|abort"):
            os.listdir(node.root / "data")
        node.ok("mount", "-f", "dataset.yaml", "data")
        assert (node.root / "data/labels.csv").read_bytes() == b"a,1\n"
        assert Path("/proc/self/mountinfo").read_text().count(f" {node.root}/data ") == 1

    @pytest.mark.usefixtures("document")
    def test_a_dead_mount_is_unmounted(self, node: Node) -> None:
        node.ok("mount", "-f", "dataset.yaml", "data")
        for pid in processes_of(node.root):
            os.kill(pid, signal.SIGSTOP)
        for pid in processes_of(node.root):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: ended(node))
        assert "its node was gone" in node.ok("unmount", "data")
        assert not mounted_below(node.root)

    def test_another_data_set_is_mounted_there(self, node: Node, document: dict[str, Any]) -> None:
        node.ok("mount", "-f", "dataset.yaml", "data")
        other = {**document, "metadata": {"name": "dogs"}}
        line = refused(node, 1, "AlreadyMounted", "mount", "-f", "-", "data", stdin=json.dumps(other))
        assert "default/cats" in line
        assert (node.root / "data/labels.csv").read_bytes() == b"a,1\n"

    @pytest.mark.usefixtures("document")
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a tmpfs")
    def test_a_mount_of_others(self, node: Node) -> None:
        (node.root / "data").rmdir()
        with tmpfs(node.root / "data", "size=64k"):
            refused(node, 1, "AlreadyMounted", "mount", "-f", "dataset.yaml", "data")
            assert os.path.ismount(node.root / "data")
            assert "tmpfs" in refused(node, 1, "NotMounted", "unmount", "data")


@contextlib.contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[None]:
    """A small disk of its own."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class TestNode:
    @pytest.mark.usefixtures("document")
    def test_a_busy_mount_is_kept_unless_forced(self, node: Node) -> None:
        node.ok("mount", "-f", "dataset.yaml", "data")
        with open(node.root / "data/labels.csv", "rb") as file:
            refused(node, 1, "MountBusy", "unmount", "data")
            assert file.read() == b"a,1\n"
            node.ok("unmount", "--force", "data")
        assert not mounted_below(node.root)

    @pytest.mark.usefixtures("document")
    def test_stop_takes_every_mount_away(self, node: Node) -> None:
        node.ok("mount", "-f", "dataset.yaml", "data")
        node.ok("node", "--stop")
        wait_for(lambda: ended(node))
        assert not mounted_below(node.root)
        assert node.ok("node", "--stop") == "no node is running\n"

    @pytest.mark.usefixtures("document")
    def test_a_second_node_on_the_same_state_is_refused(self, node: Node) -> None:
        node.ok("mount", "-f", "dataset.yaml", "data")
        refused(node, 1, "NodeAlreadyRunning", "node")

    @pytest.mark.usefixtures("document")
    def test_a_cache_folder_that_is_not_ours(self, node: Node) -> None:
        (node.root / "cache").mkdir()
        (node.root / "cache" / "thesis.txt").write_text("mine")
        refused(node, 1, "CacheFolderForeign", "mount", "-f", "dataset.yaml", "data")
        assert os.listdir(node.root / "cache") == ["thesis.txt"]
        wait_for(lambda: ended(node))

    @pytest.mark.usefixtures("document")
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a tmpfs")
    def test_a_cache_disk_that_is_read_only(self, node: Node) -> None:
        with tmpfs(node.root / "cache", "ro"):
            refused(node, 1, "CacheFolderReadOnly", "mount", "-f", "dataset.yaml", "data")
            wait_for(lambda: ended(node))

    @pytest.mark.usefixtures("document")
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a tmpfs")
    def test_a_full_cache_disk_is_no_error_for_a_reader(self, node: Node, origin: Path) -> None:
        with tmpfs(node.root / "cache", "size=256k"):
            node.ok("mount", "-f", "dataset.yaml", "data")
            assert (node.root / "data/train/a.bin").read_bytes() == (origin / "train/a.bin").read_bytes()
            node.ok("node", "--stop")
            wait_for(lambda: ended(node))

    def test_a_runtime_in_the_file_sets_up_the_cache(self, node: Node, document: dict[str, Any]) -> None:
        runtime = {
            "apiVersion": "stoker.dev/v1alpha1",
            "kind": "CacheRuntime",
            "metadata": {"name": "disks"},
            "spec": {"tiers": [{"path": f"{node.root}/disk{n}", "quota": "64Mi"} for n in (1, 2)]},
        }
        text = f"{json.dumps(runtime)}\n---\n{json.dumps(document)}\n"
        node.ok("mount", "-f", "-", "data", stdin=text)
        tiers = json.loads(node.ok("status", "--json"))["node"]["cache"]["tiers"]
        assert [(tier["path"], tier["limitBytes"]) for tier in tiers] == [
            (f"{node.root}/disk{n}", 64 << 20) for n in (1, 2)
        ]
