"""`stoker forget`: what a DataSet holds in the cache may go before anything else."""

from __future__ import annotations

import click

from stoker.api.names import full_name
from stoker.cli.connect import running_node

_EXAMPLES = """\b
Examples:
  stoker forget imagenet
  stoker forget vision/imagenet
"""


@click.command("forget", epilog=_EXAMPLES, short_help="Serve a DataSet no more; its data goes first.")
@click.argument("name")
def command(name: str) -> int:
    """Forget the DataSet NAME (or NAMESPACE/NAME), which must not be mounted.

    What it holds in the cache is not deleted at once: it goes as soon as room is needed, before anything else. A mount
    or a preload makes the DataSet known again, with what is left of it. The source is never touched.
    """
    full = full_name(name)
    running_node().forget(full)
    click.echo(f"forgot {full}")
    return 0
