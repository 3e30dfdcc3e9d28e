"""`stoker mount --foreground`: stay until Ctrl-C or SIGTERM, or until someone else takes the mounts away."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

import click

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cli.client import AdminClient

_CHECK_S = 1.0


def wait_for_the_end(node: AdminClient, mountpoints: list[str]) -> int:
    """Until a signal comes, then unmount. The exit code."""
    click.echo("Ctrl-C unmounts.", err=True)
    try:
        with interrupted_by_sigterm():
            while _still_mounted(node, mountpoints):
                time.sleep(_CHECK_S)
            return 0
    except KeyboardInterrupt:
        return _unmount(node, mountpoints)


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _still_mounted(node: AdminClient, mountpoints: list[str]) -> bool:
    try:
        now = {mount["mountpoint"] for mount in node.status()["mounts"]}
    except StokerError as error:
        if error.reason is Reason.NodeNotRunning:
            return _dead_or_alive(mountpoints)  # the daemon is being started again; the mounts hold
        raise
    return any(mountpoint in now for mountpoint in mountpoints)


def _dead_or_alive(mountpoints: list[str]) -> bool:
    from stoker.node.mountinfo import mounts

    now = {mount.mountpoint for mount in mounts()}
    return any(mountpoint in now for mountpoint in mountpoints)


def _unmount(node: AdminClient, mountpoints: list[str]) -> int:
    """Someone may use a mount at this moment: it is detached then, and ends with its last user."""
    code = 0
    for mountpoint in mountpoints:
        try:
            node.unmount(mountpoint, force=True)
            click.echo(f"unmounted {mountpoint}")
        except StokerError as error:
            if error.reason is not Reason.NotMounted:
                click.echo(error.line(), err=True)
                code = 1
    return code
