"""`stoker unmount`: take mounts away, whether their node lives or not."""

from __future__ import annotations

import os

import click

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cli.client import AdminClient
from stoker.cli.connect import running_node

_EXAMPLES = """\b
Examples:
  stoker unmount ./data                     also the mounts below ./data
  stoker unmount --force ./data             although a process uses it
  stoker unmount --all
"""


@click.command("unmount", epilog=_EXAMPLES, short_help="Take a mount away.")
@click.argument("mountpoints", nargs=-1, type=click.Path(), metavar="[MOUNTPOINT]...")
@click.option("--all", "everything", is_flag=True, help="Every mount of this node.")
@click.option("--force", is_flag=True, help="Detach a mount that is in use; who uses it keeps what is open.")
def command(mountpoints: tuple[str, ...], everything: bool, force: bool) -> int:
    """Take the mount at MOUNTPOINT away, or all those below it. What is cached stays cached.

    Nothing mounted there is no error: that is what was asked for. The node ends by itself some seconds after its last
    mount.
    """
    if bool(mountpoints) == everything:
        raise click.UsageError("Name a mountpoint, or --all.", click.get_current_context())
    node = running_node()
    known = _known(node)
    wanted = known if everything else [found for each in mountpoints for found in _matching(each, known)]
    return _unmount_all(node, dict.fromkeys(wanted), known, force=force)


def _known(node: AdminClient) -> list[str]:
    try:
        return [mount["mountpoint"] for mount in node.status()["mounts"]]
    except StokerError as error:
        if error.reason is Reason.NodeNotRunning:
            return []
        raise


def _matching(mountpoint: str, known: list[str]) -> list[str]:
    """The mount itself, else those below it."""
    path = os.path.abspath(mountpoint)
    if path in known:
        return [path]
    below = [each for each in known if each.startswith(f"{path}/")]
    return below or [path]


def _unmount_all(node: AdminClient, wanted: dict[str, None], known: list[str], *, force: bool) -> int:
    from stoker.cli.main import FAILED, PARTLY, one_line

    failed = 0
    for mountpoint in wanted:
        try:
            if mountpoint in known:
                node.unmount(mountpoint, force=force)
                click.echo(f"unmounted {mountpoint}")
            else:
                _unmount_unknown(mountpoint)
        except StokerError as error:
            failed += 1
            click.echo(one_line(error), err=True)
    return 0 if not failed else PARTLY if failed < len(wanted) else FAILED


def _unmount_unknown(mountpoint: str) -> None:
    """No living node has it: a dead mount of ours is taken away, one of others is left alone."""
    from stoker.fuse import kernel
    from stoker.node.mountinfo import mounts

    found = [mount for mount in mounts() if mount.mountpoint == mountpoint]
    if found and found[-1].fstype == kernel.FSTYPE:
        kernel.unmount(mountpoint, lazy=True)
        click.echo(f"unmounted {mountpoint} (its node was gone)")
    elif found:
        step = f"it is not Stoker's: umount {mountpoint}"
        raise StokerError(Reason.NotMounted, f"a {found[-1].fstype} is mounted there", place=mountpoint, next_step=step)
    elif not os.path.lexists(mountpoint):
        step = "see what is mounted: stoker status"
        raise StokerError(Reason.NotMounted, "there is no such folder", place=mountpoint, next_step=step)
    else:
        click.echo(f"nothing is mounted at {mountpoint}")
