"""`stoker preload`: bring what a DataSet describes into the cache, and show how far it is."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from stoker.api.human import files, size
from stoker.cli import documents
from stoker.cli.client import AdminClient
from stoker.cli.connect import again_if_gone, start_node
from stoker.cli.documents import Order
from stoker.cli.foreground import interrupted_by_sigterm
from stoker.cli.progress import Listing
from stoker.cli.render import duration, hidden, job_line

_PLAIN_S = 5.0
_FAILURES_SHOWN = 10

_EXAMPLES = """\b
Examples:
  stoker preload -f dataset.yaml
  stoker preload -f dataset.yaml --path 'train/**' --path labels.csv
"""


@click.command("preload", epilog=_EXAMPLES, short_help="Bring a DataSet into the cache.")
@documents.file_option
@click.option("--path", "paths", multiple=True, metavar="GLOB", help="Only files whose path in the mount matches.")
@documents.runtime_option
def command(file: str, paths: tuple[str, ...], runtime: str | None) -> int:
    """Load the files of the DataSets in FILE into the cache of this node; what is there already is not loaded again.

    Ctrl-C keeps what is done, and the same command goes on from there. One file that fails stops no other; exit code 3
    says that something is missing. The DataSet need not be mounted.
    """
    found = documents.read(file, runtime)
    node = start_node(found.runtime)
    return max(_preload(node, order, paths) for order in found.orders)


def _preload(node: AdminClient, order: Order, paths: tuple[str, ...]) -> int:
    from stoker.cli.main import FAILED, PARTLY

    with Listing(order.name) as listing:
        wish = order.to_json(operation="Preload", paths=list(paths), onlyMissing=True)
        job = again_if_gone(lambda: node.start_job(wish, listing.listed), None)
    started = time.monotonic()
    try:
        with interrupted_by_sigterm():
            job = _follow(node, job)
    except KeyboardInterrupt:
        job = node.cancel_job(job["id"])
    _summary(order.name, job, time.monotonic() - started)
    return {"Succeeded": 0, "Failed": FAILED}.get(job["phase"], PARTLY)


def _follow(node: AdminClient, job: dict[str, Any]) -> dict[str, Any]:
    """Until the job has ended, with a bar on a terminal and plain lines elsewhere."""
    if sys.stderr.isatty():
        from stoker.cli.bar import follow_with_bar

        return follow_with_bar(node, job)
    said = time.monotonic()
    while job["phase"] in ("Pending", "Running"):
        if time.monotonic() - said >= _PLAIN_S:
            click.echo(job_line(job), err=True)
            said = time.monotonic()
        job = node.job(job["id"], job["version"])
    return job


def _summary(name: str, job: dict[str, Any], seconds: float) -> None:
    progress = job["progress"]
    rate = f", {size(progress['bytesDone'] / seconds)}/s" if seconds > 0 else ""
    done = f"{files(progress['filesDone'])} of {progress['filesTotal']:,}, {size(progress['bytesDone'])}"
    click.echo(f"preloaded {name}: {done} in {duration(seconds)}{rate}")
    for failure in job["failures"][:_FAILURES_SHOWN]:
        click.echo(f"{failure['reason']}: {failure['path']}: {failure['message']}", err=True)
    unsaid = progress["filesFailed"] - min(len(job["failures"]), _FAILURES_SHOWN)
    if unsaid > 0:
        click.echo(f"and {files(unsaid)} more that failed", err=True)
    if skipped := hidden(job.get("skipped", {})):
        click.echo(
            f"not loaded, because a folder cannot show them: {skipped} (stoker manifest show --hidden)", err=True
        )
    if job["phase"] == "Cancelled":
        click.echo("Interrupted; what is loaded stays. The same command goes on from here.", err=True)
    elif progress["filesFailed"]:
        click.echo("The same command tries again what is missing.", err=True)
