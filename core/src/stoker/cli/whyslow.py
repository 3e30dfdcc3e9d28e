"""`stoker why-slow`: what the readers of a data set waited for in the last minutes, and the one thing to change."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from stoker.api.duration import Duration
from stoker.api.errors import StokerError
from stoker.api.fielderror import FieldError
from stoker.api.human import size
from stoker.api.reasons import Reason
from stoker.cli.connect import running_node

_EXAMPLES = """\b
Examples:
  stoker why-slow imagenet                  the DataSet default/imagenet
  stoker why-slow ./data --since 10m        what is mounted at ./data
  stoker why-slow team/imagenet --json | jq .verdict
"""

_MEANS = {
    "store": "the store, until its first byte",
    "network": "the rest of the body",
    "queue": "a turn to ask the store",
    "disk": "the cache's disk",
    "fuse": "Stoker's own work",
    "application": "nothing: the readers' own pace",
}


@click.command("why-slow", epilog=_EXAMPLES, short_help="What reads wait for, and what to change.")
@click.argument("name")
@click.option("--since", default="5m", show_default=True, metavar="TIME", help="So far back; 15m at most.")
@click.option("--json", "as_json", is_flag=True, help="The document of GET /v1/why-slow, on one line.")
def command(name: str, since: str, as_json: bool) -> int:
    """Say what the readers of NAME, a DataSet or a mountpoint, waited for, in percent of their time, with the figures
    beside it, and name the one setting or action to change.

    Reads that the kernel answers from its own page cache are not seen by Stoker: they count as the readers' own pace.
    """
    answer = running_node().why_slow(name, os.path.abspath(name), _seconds(since))
    click.echo(json.dumps(answer) if as_json else "\n".join(lines(answer)))
    return 0


def lines(answer: dict[str, Any]) -> list[str]:
    """The answer for people."""
    figures, verdict = answer["figures"], answer["verdict"]
    change = f"\nChange: {verdict['change']}" if verdict["change"] else ""
    shown = [
        f"{answer['dataSet']}, the last {answer['windowSeconds']:g} s with reads: "
        f"{figures['readerSeconds']:,.1f} s of readers, up to {figures['mostReaders']} at once",
        "",
        *(
            f"  {part['percent']:5.1f}%  {part['seconds']:9.2f} s  {name:12} {_MEANS[name]}"
            for name, part in answer["parts"].items()
        ),
        "",
        f"Read         {figures['reads']:,} requests, {size(figures['readBytes'])}, "
        f"{size(figures['readBytesPerSecond'])}/s; {figures['hitReads']:,} of them from the cache "
        f"({figures['meanHitMs']:.2f} ms each, the others {figures['meanMissMs']:.1f} ms)",
        f"From source  {figures['sourceRequests']:,} requests, {size(figures['sourceBytes'])}, "
        f"{size(figures['sourceBytesPerSecond'])}/s; first byte after {figures['firstByteMs']:.0f} ms, then "
        f"{size(figures['bytesPerSecondOfARequest'])}/s for one request; {figures['sourceFailures']:,} failed",
        f"Fetched      {size(figures['fetchedAheadBytes'])} ahead of readers, "
        f"{size(figures['fetchedAgainBytes'])} again after an eviction",
        "",
        f"{verdict['text']}{change}",
    ]
    return [line.rstrip() for line in shown]


def _seconds(since: str) -> float:
    try:
        return Duration.parse(since).seconds
    except FieldError as error:
        raise StokerError(Reason.InvalidValue, error.message, place="--since", next_step=error.accepted) from None
