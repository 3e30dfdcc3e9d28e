"""Each wrong input: one line that says what, where and what next, and its exit code; nothing is started."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cli import main as shell

HEAD = "apiVersion: stoker.dev/v1alpha1\nkind: DataSet\nmetadata: {name: a}\n"

DOCUMENTS = [
    ("broken yaml", "a: [1\nb: 2\n", "InvalidYaml", "dataset.yaml:2"),
    ("empty", "", "InvalidYaml", "dataset.yaml"),
    ("wrong kind", "apiVersion: stoker.dev/v1alpha1\nkind: DataSot\n", "UnknownKind", "dataset.yaml:2"),
    ("unknown field", HEAD + "spec: {sorces: []}\n", "UnknownField", "spec.sorces"),
    ("missing field", HEAD + "spec: {}\n", "MissingField", "spec.sources"),
    ("unknown scheme", HEAD + "spec: {sources: [{uri: ftp://a/b}]}\n", "UnknownScheme", "spec.sources[0].uri"),
    ("wrong value", HEAD + "spec: {sources: [{uri: s3://a/}], mode: rw}\n", "InvalidValue", "spec.mode"),
    (
        "no DataSet",
        "apiVersion: stoker.dev/v1alpha1\nkind: CacheRuntime\nmetadata: {name: a}\n"
        "spec: {tiers: [{path: /c, quota: 1Gi}]}\n",
        "UnknownKind",
        "dataset.yaml",
    ),
]


@pytest.mark.parametrize(("text", "reason", "where"), [d[1:] for d in DOCUMENTS], ids=[d[0] for d in DOCUMENTS])
@pytest.mark.parametrize("command", [("mount", "data"), ("preload",)], ids=["mount", "preload"])
def test_a_wrong_document_is_refused(
    place: Path, stoker: Callable[..., object], command: tuple[str, ...], text: str, reason: str, where: str
) -> None:
    (place / "data").mkdir()
    (place / "dataset.yaml").write_text(text)
    done = stoker(command[0], "-f", "dataset.yaml", *command[1:])
    assert_refused(done, 2, reason, where)
    assert not (place / "run").exists()


def test_no_such_file(place: Path, stoker: Callable[..., object]) -> None:
    assert_refused(stoker("mount", "-f", "nothing.yaml", "data"), 2, "FileNotFound", "nothing.yaml")


@pytest.mark.parametrize(
    "arguments",
    [("mount",), ("mount", "-f", "x"), ("mount", "--wrong"), ("moumt",), ("unmount",), ("unmount", "a", "--all")],
    ids=" ".join,
)
def test_a_wrong_command_line_is_one_line(
    place: Path, stoker: Callable[..., object], arguments: tuple[str, ...]
) -> None:
    done = stoker(*arguments)
    assert_refused(done, 2, "InvalidUsage", "")
    assert "--help" in done.err


class TestMountpoint:
    """CL-01: the cause at once, before anything runs in the background."""

    @pytest.fixture(autouse=True)
    def _in_an_instant(self, place: Path) -> object:
        begun = time.monotonic()
        yield
        assert time.monotonic() - begun < 2
        assert not (place / "run").exists()

    @pytest.mark.fuse
    def test_missing(self, stoker: Callable[..., object], data_set: Path) -> None:
        assert_refused(stoker("mount", "-f", data_set, "data"), 1, "MountpointMissing", "/data")

    @pytest.mark.fuse
    def test_a_file(self, place: Path, stoker: Callable[..., object], data_set: Path) -> None:
        (place / "data").write_text("")
        assert_refused(stoker("mount", "-f", data_set, "data"), 1, "MountpointNotDirectory", "/data")

    @pytest.mark.fuse
    def test_not_empty(self, place: Path, stoker: Callable[..., object], data_set: Path) -> None:
        (place / "data").mkdir()
        (place / "data" / "mine").write_text("")
        assert_refused(stoker("mount", "-f", data_set, "data"), 1, "MountpointNotEmpty", "/data")

    @pytest.mark.fuse
    def test_below_its_own_source(self, place: Path, stoker: Callable[..., object], data_set: Path) -> None:
        (place / "origin" / "data").mkdir()
        assert_refused(stoker("mount", "-f", data_set, "origin/data"), 1, "MountpointInsideSource", "origin/data")

    @pytest.mark.fuse
    def test_a_foreign_mount_is_left_alone(self, stoker: Callable[..., object], data_set: Path) -> None:
        """CL-05."""
        assert_refused(stoker("mount", "-f", data_set, "/proc"), 1, "AlreadyMounted", "/proc")
        assert os.path.ismount("/proc")

    @pytest.mark.fuse
    def test_no_fusermount3(
        self, place: Path, stoker: Callable[..., object], data_set: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place / "data").mkdir()
        monkeypatch.setenv("PATH", str(place))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert_refused(stoker("mount", "-f", data_set, "data"), 1, "FuseUnavailable", "fusermount3")

    def test_no_dev_fuse(
        self, place: Path, stoker: Callable[..., object], data_set: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place / "data").mkdir()
        real = os.open

        def absent(path: object, *rest: int, **more: int) -> int:
            return real("/nonexistent" if path == "/dev/fuse" else path, *rest, **more)

        monkeypatch.setattr(os, "open", absent)
        assert_refused(stoker("mount", "-f", data_set, "data"), 1, "FuseUnavailable", "/dev/fuse")


def test_a_file_that_may_not_be_read(place: Path, stoker: Callable[..., object]) -> None:
    (place / "folder").mkdir()
    assert_refused(stoker("mount", "-f", "folder", "data"), 1, "PermissionDenied", "folder")


def test_an_unforeseen_error_is_one_line_and_debug_shows_the_trace(
    place: Path, stoker: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("stoker.cli.status.running_node", broken)
    done = stoker("status")
    assert_refused(done, 1, "Internal", "RuntimeError: two lines")
    assert "--debug" in done.err
    for arguments in (("--debug", "status"), ("status", "--debug")):
        assert "Traceback" in stoker(*arguments).err


@pytest.mark.parametrize("name", ["STOKER_FETCHERS", "STOKER_CACHE_QUOTA", "STOKER_RESERVE_FREE"])
def test_a_wrong_setting_names_the_variable(
    place: Path, stoker: Callable[..., object], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "many")
    assert_refused(stoker("status"), 2, "InvalidValue", name)


def test_two_data_sets_of_one_name(place: Path, stoker: Callable[..., object]) -> None:
    text = HEAD + "spec: {sources: [{uri: s3://a/}]}\n---\n"
    (place / "dataset.yaml").write_text(text + text)
    assert_refused(stoker("preload", "-f", "dataset.yaml"), 2, "InvalidValue", "dataset.yaml:6: metadata.name")


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_an_exit_code(reason: Reason) -> None:
    assert shell.exit_code(StokerError(reason, "text")) in (1, 2)


def test_no_socket_left_by_a_refusal(place: Path, stoker: Callable[..., object], data_set: Path) -> None:
    stoker("mount", "-f", data_set, "nothing/here")
    assert not [path for path in place.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]


def assert_refused(done: object, code: int, reason: str, where: str) -> None:
    assert done.code == code, done
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith(f"{reason}: "), done.err
    assert where in done.err
    assert " Next: " in done.err
