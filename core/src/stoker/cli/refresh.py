"""`stoker refresh`: list the sources of a DataSet again, and say what changed there."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from stoker.api.errors import StokerError
from stoker.api.human import files, size
from stoker.api.names import full_name
from stoker.api.reasons import Reason
from stoker.cli.client import AdminClient
from stoker.cli.connect import start_node
from stoker.cli.progress import Listing

_WATCH_S = 1.0
_MOUNTS_SHOWN = 5

_EXAMPLES = """\b
Examples:
  stoker refresh imagenet
  stoker refresh vision/imagenet --json | jq .changed
  stoker refresh imagenet --watch           then each new generation, as it is found
"""


@click.command("refresh", epilog=_EXAMPLES, short_help="List the sources of a DataSet again.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each generation.")
@click.option("--watch", is_flag=True, help="Stay, and tell each later generation, until Ctrl-C.")
def command(name: str, as_json: bool, watch: bool) -> int:
    """List the sources of the DataSet NAME (or NAMESPACE/NAME) again, and say how many files were added, removed and
    modified since they were last listed.

    New mounts and the S3 endpoint show what was found. Mounts that there are keep what they show; to see the new files,
    mount again. What no mount needs any more leaves the cache, and what did not change stays in it. When the sources
    cannot be listed everything stays as it is. With spec.refresh.interval the node does the same by itself.
    """
    full = full_name(name)
    node = start_node(None)
    order = {"dataSet": full, "credentials": _credentials(node, full)}
    with Listing(full) as listing:
        found = node.refresh(order, listing.listed)
    _print(found, as_json=as_json)
    if watch:
        _watch(node, full, found["generation"]["digest"], as_json=as_json)
    return 0


def _credentials(node: AdminClient, name: str) -> dict[str, dict[str, str]]:
    """What this user has for the sources of the DataSet, as the node was told of it."""
    from stoker.api.dataset import DataSet
    from stoker.cli.documents import Order

    return Order(DataSet.from_body(node.document(name)), name).credentials()


def _print(found: Mapping[str, Any], *, as_json: bool) -> None:
    click.echo(json.dumps(found) if as_json else "\n".join(lines(found)))
    sys.stdout.flush()


def lines(found: Mapping[str, Any]) -> list[str]:
    """What was found, for people."""
    generation, changed = found["generation"], found["changed"]
    holds = f"{files(generation['files'])}, {size(generation['bytes'])}, generation {generation['digest'][:12]}"
    if not found["new"]:
        said = [f"{found['dataSet']} is unchanged: {holds}"]
    else:
        counts = ", ".join(f"{changed[kind]:,} {kind}" for kind in ("added", "removed", "modified"))
        said = [f"refreshed {found['dataSet']}: {counts}; {holds}"]
    if kept := found["keptBy"]:
        shown = ", ".join(kept[:_MOUNTS_SHOWN]) + (", ..." if len(kept) > _MOUNTS_SHOWN else "")
        said.append(f"mounts that keep an older generation: {shown} (mount again to see the new one)")
    return said


def _watch(node: AdminClient, name: str, digest: str, *, as_json: bool) -> None:
    """Until Ctrl-C, or until the node does not know it any more."""
    try:
        while True:
            time.sleep(_WATCH_S)
            known = next((each for each in node.data_sets() if each["name"] == name), None)
            if known is None:
                step = "it was forgotten; mount it again, or apply it."
                raise StokerError(Reason.DataSetNotFound, "this node does not know it", place=name, next_step=step)
            generation = known["generation"]
            if generation["digest"] != digest:
                digest = generation["digest"]
                news = {"dataSet": name, "new": True, "generation": generation, "changed": generation["changed"]}
                _print({**news, "keptBy": []}, as_json=as_json)
    except KeyboardInterrupt:
        pass
