"""The progress bar of a preload, by rich. Imported only on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from stoker.api.human import size
from stoker.cli.client import AdminClient
from stoker.cli.render import duration


class _Left(ProgressColumn):
    """Time left, as the node estimates it over the last seconds."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"]
        return Text(f"{duration(task.fields['eta'])} left" if rate else "")


def follow_with_bar(node: AdminClient, job: dict[str, Any]) -> dict[str, Any]:
    """Show the job until it has ended; the last state of it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>5.1f}%  {task.fields[files]}  {task.fields[bytes]}  {task.fields[speed]}"),
        _Left(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    with Progress(*columns, console=Console(stderr=True), expand=True) as progress:
        name = job["dataSet"].rpartition("/")[2]
        task = progress.add_task(f"preload {name}", total=None, **_fields(job["progress"]))
        while True:
            now = job["progress"]
            progress.update(task, total=max(1, now["bytesTotal"]), completed=_completed(now), **_fields(now))
            if job["phase"] not in ("Pending", "Running"):
                return job
            job = node.job(job["id"], job["version"])


def _completed(progress: dict[str, Any]) -> float:
    """The bar is full only when every file is done, empty ones too."""
    return float(progress["percent"]) / 100 * int(max(1, progress["bytesTotal"]))


def _fields(progress: dict[str, Any]) -> dict[str, Any]:
    failed = progress["filesFailed"]
    return {
        "files": f"{progress['filesDone']:,}/{progress['filesTotal']:,} files",
        "bytes": f"{size(progress['bytesDone'])}/{size(progress['bytesTotal'])}",
        "speed": f"{size(progress['bytesPerSecond'])}/s",
        "rate": progress["bytesPerSecond"],
        "eta": progress["etaSeconds"],
        "failed": f"{failed:,} failed" if failed else "",
    }
