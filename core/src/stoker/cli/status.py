"""`stoker status`: what is mounted, how much of it is cached, and where reads came from."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cli.connect import running_node

if TYPE_CHECKING:
    from rich.console import RenderableType

_WATCH_S = 1.0
_NOTHING: dict[str, Any] = {"node": None, "dataSets": [], "mounts": [], "jobs": []}

_EXAMPLES = """\b
Examples:
  stoker status
  stoker status --watch
  stoker status --json | jq '.mounts[] | {dataSet, cachedPercent}'
"""


@click.command("status", epilog=_EXAMPLES, short_help="What is mounted, and how much is cached.")
@click.option("--json", "as_json", is_flag=True, help="The document of GET /v1/status, on one line.")
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
def command(as_json: bool, watch: bool) -> int:
    """Show the mounts of this node: generation, files, bytes, how much is cached, hit ratio, bytes from the cache and
    from the sources, and keys that a folder cannot show.

    Reads that the kernel answers from its own page cache are not seen by Stoker and count nowhere here.
    """
    node = running_node()

    def now() -> dict[str, Any]:
        try:
            return node.status()
        except StokerError as error:
            if error.reason is Reason.NodeNotRunning:
                return _NOTHING
            raise

    if watch:
        _watch(now, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(now()))
    else:
        _print(now())
    return 0


def _watch(now: Any, *, as_json: bool) -> None:
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                click.echo(json.dumps(now())) if as_json else _print(now())
                sys.stdout.flush()
                time.sleep(_WATCH_S)
        _live(now)
    except KeyboardInterrupt:
        pass


def _live(now: Any) -> None:
    from rich.live import Live

    from stoker.cli.tables import status_view

    with Live(status_view(now()), refresh_per_second=4, screen=False) as live:
        while True:
            time.sleep(_WATCH_S)
            live.update(status_view(now()))


def _print(status: dict[str, Any]) -> None:
    from stoker.cli.tables import console, status_view

    view: RenderableType = status_view(status)
    console().print(view)
