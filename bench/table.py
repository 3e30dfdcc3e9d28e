"""The results as a table, for a terminal and for the README. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.table import Table

WHAT = {
    "hot_small": "small files (64 KiB), in memory",
    "small_disk": "small files from the cache's disk",
    "list_100k": "list a folder of 100,000",
    "first_entry": "first entry after a mount",
    "seq_warm": "one large file from the cache's disk",
    "seq_cold_loopback": "one large file from the store, cold",
    "preload_large": "preload large objects",
    "preload_small": "preload small objects (64 KiB)",
    "list_source": "list a store",
}
_Result = Mapping[str, Any]


def results_table(results: Iterable[_Result]) -> Table:
    """With the spread of the runs and the noise of the machine."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("row", "unit", "Stoker", "min-max", "reference", "min-max", "ratio", "bar", "noise"):
        table.add_column(column, justify="left" if column in ("row", "unit") else "right")
    for result in results:
        ours, theirs = ([run[side] for run in result["runs"]] for side in (0, 1))
        met = result["ratio"] >= result["bar"]
        table.add_row(
            result["row"],
            result["unit"],
            _number(result["subject"]),
            f"{_number(min(ours))}-{_number(max(ours))}",
            f"{result['referenceName']} {_number(result['reference'])}",
            f"{_number(min(theirs))}-{_number(max(theirs))}",
            f"[{'green' if met else 'red'}]{result['ratio']:.2f}",
            f"{result['bar']:.2f}",
            f"{(max(theirs) - min(theirs)) / result['reference']:.0%}",
        )
    return table


def markdown(results: Iterable[_Result]) -> str:
    """For the README; the median of the runs."""
    lines = ["| work | Stoker | compared with | ratio | bar |", "|---|---|---|---|---|"]
    for result in results:
        unit = result["unit"]
        lines.append(
            f"| {WHAT[result['row']]} | {_number(result['subject'])} {unit} "
            f"| {result['referenceName']}: {_number(result['reference'])} {unit} "
            f"| {result['ratio']:.2f} | {result['bar']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
