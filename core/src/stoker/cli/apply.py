"""`stoker apply`: change what DataSets may hold in the cache of this node, while they are read."""

from __future__ import annotations

import click

from stoker.cli import documents
from stoker.cli.connect import again_if_gone, start_node
from stoker.cli.render import limits, pinned

_EXAMPLES = """\b
Examples:
  stoker apply -f dataset.yaml
"""


@click.command("apply", epilog=_EXAMPLES, short_help="Change what a DataSet may hold in the cache.")
@documents.file_option
@documents.runtime_option
def command(file: str, runtime: str | None) -> int:
    """Tell the node what the DataSets in FILE may hold (spec.cache quota, inodes, priority, ttl), and what they pin.

    Pins that do not fit, and limits below what is pinned, are refused (PinsDoNotFit) and change nothing. All of it
    counts at once, also for what is mounted, and after a restart of the node. Mounts keep everything else as it was
    when they were made: sources, files and spec.mount change with the next mount. `stoker mount` and `stoker preload`
    apply their FILE, too.
    """
    found = documents.read(file, runtime)
    node = start_node(found.runtime)
    for order in found.orders:
        wish = order.to_json()
        data_set = again_if_gone(lambda wish=wish: node.apply(wish), found.runtime)  # type: ignore[misc]
        pins = f", pinned: {pinned(data_set)}" if data_set["pinnedFiles"] else ""
        click.echo(f"applied {data_set['name']}: {limits(data_set)}, priority {data_set['priority']}{pins}")
    return 0
