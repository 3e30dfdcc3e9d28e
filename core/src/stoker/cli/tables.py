"""Tables on a terminal, by rich. Imported only by commands that print one."""

from __future__ import annotations

import sys
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stoker.api.human import size
from stoker.cli.checks import Check, State
from stoker.cli.render import generation, hidden, job_line, limits, percent, pinned, pins_warning, trouble

_PIPE_WIDTH = 200  # characters; into a file or a pipe nothing is cut to a terminal's width


def console() -> Console:
    """Standard output; without a terminal plain text, wide enough for long paths."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_PIPE_WIDTH)


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """Columns without lines; `numbers` are aligned to the right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return made


def status_view(status: dict[str, Any]) -> RenderableType:
    """The whole of `stoker status`."""
    if status["node"] is None:
        return Text("No node is running: nothing is mounted.")
    parts: list[RenderableType] = [_mounts(status["mounts"]) if status["mounts"] else Text("Nothing is mounted.")]
    parts += [Text(line) for line in (*_hidden_lines(status["mounts"]), *trouble(status))]
    jobs = [job for job in status["jobs"] if job["phase"] in ("Pending", "Running")]
    parts += [Text(job_line(job)) for job in jobs]
    cache = status["node"]["cache"]
    parts.append(_cache(cache["tiers"]))
    if shown := [each for each in status["dataSets"] if each["generation"] or _is_something(each)]:
        parts.append(_data_sets(shown))
    parts += [Text(line) for each in status["dataSets"] if (line := pins_warning(each))]
    if cache["lostBytes"]:
        parts.append(Text(f"Lost from the cache: {size(cache['lostBytes'])}, {cache['badPages']:,} bad pages."))
    return Group(*parts)


def _mounts(mounts: list[dict[str, Any]]) -> Table:
    numbers = ("Files", "Size", "Cached", "Hit", "From cache", "From source")
    made = table("DataSet", "Mountpoint", "State", "Generation", *numbers, numbers=numbers)
    for mount in mounts:
        ratio = mount["hitRatio"]
        made.add_row(
            mount["dataSet"],
            mount["mountpoint"],
            mount["state"],
            mount["generation"][:12],
            f"{mount['files']:,}",
            size(mount["bytes"]),
            percent(mount["cachedPercent"]),
            percent(None if ratio is None else ratio * 100),
            size(mount["bytesFromCache"]),
            size(mount["bytesFromSource"]),
        )
    return made


def _data_sets(data_sets: list[dict[str, Any]]) -> Table:
    numbers = ("Held", "Files", "Pinned", "Priority")
    made = table("DataSet", *numbers, "May hold", "Generation", "Listed", "Changed", numbers=numbers)
    for each in data_sets:
        made.add_row(
            each["name"],
            size(each["heldBytes"]),
            f"{each['heldFiles']:,}",
            pinned(each),
            str(each["priority"]),
            limits(each),
            *generation(each["generation"]),
        )
    return made


def _is_something(data_set: dict[str, Any]) -> bool:
    return bool(data_set["heldFiles"] or data_set["mounts"] or data_set["pinnedFiles"])


def _hidden_lines(mounts: list[dict[str, Any]]) -> list[str]:
    shown = [(mount["dataSet"], hidden(mount["hidden"])) for mount in mounts]
    return [f"{name}: hidden keys: {text} (stoker manifest show {name} --hidden)" for name, text in shown if text]


def _cache(tiers: list[dict[str, Any]]) -> RenderableType:
    numbers = ("Used", "Pinned", "Limit", "Files used")
    made = table("Cache", *numbers, "State", numbers=numbers)
    for tier in tiers:
        sizes = (size(tier[name]) for name in ("usedBytes", "pinnedBytes", "limitBytes"))
        made.add_row(tier["path"], *sizes, f"{tier['usedInodes']:,}", _state(tier))
    return made


def _state(tier: dict[str, Any]) -> str:
    return f"{tier['state']} ({tier['reason']})" if tier["reason"] else str(tier["state"])


def checks_view(checks: list[Check]) -> RenderableType:
    """The whole of `stoker doctor`: a line for each check, and below it what a missing one costs."""
    styles = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(Text.assemble((f"{check.state:5}", styles[check.state]), f"{check.name:{width}}  {check.found}"))
        lines += [Text(f"     {'':{width}}  {text}") for text in _consequence(check)]
    return Group(*lines)


def _consequence(check: Check) -> list[str]:
    return [f"cost: {check.cost}", f"next: {check.step}"] if check.state is not State.OK else []
