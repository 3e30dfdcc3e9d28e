"""`stoker mount`: what the DataSets of a file describe, as folders of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from stoker.api.errors import StokerError
from stoker.cli import documents
from stoker.cli.client import AdminClient
from stoker.cli.connect import again_if_gone, start_node
from stoker.cli.documents import Order
from stoker.cli.foreground import wait_for_the_end
from stoker.cli.progress import Listing
from stoker.cli.render import mounted_line, pins_warning

if TYPE_CHECKING:
    from stoker.api.cacheruntime import CacheRuntime

_EXAMPLES = """\b
Examples:
  stoker mount -f dataset.yaml ./data
  stoker mount -f team.yaml ./data          several DataSets: ./data/<name> each
  cat dataset.yaml | stoker mount -f - ./data
  stoker mount -f dataset.yaml ./data --foreground
"""


@click.command("mount", epilog=_EXAMPLES, short_help="Mount what a DataSet describes.")
@documents.file_option
@click.argument("mountpoint", type=click.Path())
@click.option("--foreground", is_flag=True, help="Stay, and unmount on Ctrl-C or SIGTERM.")
@documents.runtime_option
def command(file: str, mountpoint: str, foreground: bool, runtime: str | None) -> int:
    """List the sources of the DataSet in FILE and mount them at MOUNTPOINT, an empty folder.

    Returns when the mount answers. The mount is read-only and shows the sources as they were listed now. The same
    command again changes nothing.
    """
    from stoker.cli.precheck import check

    found = documents.read(file, runtime)
    alone = len(found.orders) == 1
    places = [(order, documents.mountpoint_of(order, mountpoint, alone=alone)) for order in found.orders]
    if not alone:
        _make_folders(mountpoint, [place for _order, place in places])
    for order, place in places:
        check(order, place)
    node = start_node(found.runtime)
    done, code = _mount_all(node, places, found.runtime)
    if foreground and done:
        return wait_for_the_end(node, done) or code
    return code


def _make_folders(base: str, places: list[str]) -> None:
    """The folder for all of them must be there, as for one; those below it are made."""
    if os.path.isdir(base):
        for place in places:
            os.makedirs(place, exist_ok=True)


def _mount_all(
    node: AdminClient, places: list[tuple[Order, str]], runtime: CacheRuntime | None
) -> tuple[list[str], int]:
    """Mount each; one that fails stops none of the others. The mountpoints made, and the exit code."""
    from stoker.cli.main import PARTLY, exit_code, one_line

    done: list[str] = []
    errors: list[StokerError] = []
    for order, place in places:
        try:
            mount = _mount(node, order, place, runtime)
            click.echo(mounted_line(mount))
            if warning := pins_warning(mount):
                click.echo(warning, err=True)
            done.append(place)
        except StokerError as error:
            if len(places) == 1:
                raise
            errors.append(error)
            click.echo(one_line(error), err=True)
    if not errors:
        return done, 0
    return done, PARTLY if done else exit_code(errors[0])


def _mount(node: AdminClient, order: Order, place: str, runtime: CacheRuntime | None) -> dict[str, Any]:
    with Listing(order.name) as listing:
        return again_if_gone(lambda: node.mount(order.to_json(mountpoint=place), listing.listed), runtime)
