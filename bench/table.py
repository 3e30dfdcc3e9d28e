"""The results as a table, for a terminal and for the README. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.table import Table

WHAT = {
    "hot_small": "small files (64 KiB), in memory",
    "small_disk": "small files from the cache's disk",
    "small_disk_16": "the same by 16 threads",
    "list_100k": "list a folder of 100,000 with attributes",
    "list_100k_names": "the same, names only",
    "first_entry": "first entry after a mount",
    "seq_warm": "one large file from the cache's disk",
    "seq_cold_loopback": "one large file from the store, cold",
    "seq_cold_link": "the same over 2 Gbit/s",
    "seq_cold_latency": "the same with 20 ms of latency",
    "seq_cold_far": "the same over 2 Gbit/s with 20 ms of latency",
    "cpu_per_gib": "CPU time for it (the store's not counted)",
    "amplification_256k": "bytes fetched for bytes read, random 256 KiB",
    "amplification_4k": "the same, random 4 KiB",
    "amplification_mmap_4k": "the same, random 4 KiB of a mapping",
    "preload_large": "preload large objects",
    "preload_small": "preload small objects (64 KiB)",
    "list_source": "list a store",
    "s3_get_large": "one large object by S3 from the cache, 8 threads of boto3",
    "s3_get_small": "small objects (64 KiB) by S3, the same",
}
_Result = Mapping[str, Any]


def results_table(results: Iterable[_Result]) -> Table:
    """With the spread of the runs, the noise of the machine, and the store's CPU seconds for a run of each."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("row", "unit", "Stoker", "min-max", "reference", "min-max", "ratio", "bar", "noise", "store CPU"):
        table.add_column(column, justify="left" if column in ("row", "unit") else "right", no_wrap=True)
    for result in results:
        ours, theirs = ([run[side] for run in result["runs"]] for side in (0, 1))
        table.add_row(
            result["row"],
            result["unit"],
            _number(result["subject"]),
            f"{_number(min(ours))}-{_number(max(ours))}",
            f"{result['referenceName']} {_number(result['reference'])}",
            f"{_number(min(theirs))}-{_number(max(theirs))}",
            f"{result['ratio']:.2f}",
            f"[{'green' if result['met'] else 'red'}]{_bar(result)}",
            f"{(max(theirs) - min(theirs)) / result['reference']:.0%}",
            " / ".join(f"{side:.1f}" for side in result.get("serverCpu", ())),
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
            f"| {result['ratio']:.2f} | {_bar(result)} |"
        )
    return "\n".join(lines) + "\n"


def _bar(result: _Result) -> str:
    """More is better: what the ratio must reach. Less is better: what the subject must not pass."""
    if result["better"] == "less":
        return f"≤ {_number(result['bar'])} {result['unit']}"
    return f"≥ {result['bar']:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"
