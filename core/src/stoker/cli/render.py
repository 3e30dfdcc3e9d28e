"""Numbers and mounts as people read them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker.api.human import files, size


def duration(seconds: float) -> str:
    """`45s`, `3m20s`, `2h05m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def hidden(counts: Mapping[str, int]) -> str:
    """`2 EmptyComponent, 1 NulByte`; empty when nothing is hidden."""
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.items()) if count)


def mounted_line(mount: Mapping[str, Any]) -> str:
    """What `stoker mount` says when it is done."""
    line = f"mounted {mount['dataSet']} at {mount['mountpoint']}: {files(mount['files'])}, {size(mount['bytes'])}"
    not_shown = hidden(mount["hidden"])
    return f"{line}; hidden: {not_shown} (stoker manifest show --hidden)" if not_shown else line


def percent(value: float | None) -> str:
    """Rounded down: 100 % only when all is there."""
    return "-" if value is None else f"{int(value * 10) / 10:.1f}%"


def job_line(job: Mapping[str, Any]) -> str:
    """One job: `preload-1 default/imagenet: 120 of 4,000 files, 1.2 GiB of 40.0 GiB (3.0%), 410.2 MiB/s, ...`."""
    progress = job["progress"]
    failed = f", {files(progress['filesFailed'])} failed" if progress["filesFailed"] else ""
    return (
        f"{job['id']} {job['dataSet']}: {progress['filesDone']:,} of {files(progress['filesTotal'])}, "
        f"{size(progress['bytesDone'])} of {size(progress['bytesTotal'])} ({percent(progress['percent'])}), "
        f"{size(progress['bytesPerSecond'])}/s, {duration(progress['etaSeconds'])} left{failed}"
    )


def limits(data_set: Mapping[str, Any]) -> str:
    """What a DataSet may hold: `at most 2.0 TiB, at most 500 files, for 1h00m after the last use`."""
    parts = [quota(data_set["quotaBytes"])]
    if data_set["quotaInodes"]:
        parts.append(f"at most {files(data_set['quotaInodes'])}")
    if data_set["ttlSeconds"]:
        parts.append(f"for {duration(data_set['ttlSeconds'])} after the last use")
    return ", ".join(parts)


def quota(nbytes: int) -> str:
    """A limit in bytes; negative leaves that much to others."""
    if not nbytes:
        return "no limit of its own"
    return f"at most {size(nbytes)}" if nbytes > 0 else f"leaves {size(-nbytes)} to others"


def pinned(data_set: Mapping[str, Any]) -> str:
    """What a DataSet pins: `-`, or `1.5 GiB, 40.0% cached`."""
    whole, cached = data_set["pinnedBytes"], data_set["pinnedCachedBytes"]
    if not whole:
        return "-"
    return size(whole) if cached >= whole else f"{size(whole)}, {percent(cached * 100 / whole)} cached"


def pins_warning(data_set: Mapping[str, Any]) -> str:
    """What is to be said of pins that are not as they were wanted; empty when all is well."""
    if data_set.get("pinsFit", True):  # an older node says nothing of pins
        return ""
    return f"PinsDoNotFit: {data_set.get('name') or data_set['dataSet']}: {data_set['pinsMessage']}"


def generation(found: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """The current generation of a DataSet, when it was listed, and what was different: `+12 -3 ~1`."""
    if found is None:
        return "-", "-", "-"
    changed = found["changed"]
    signs = (("+", "added"), ("-", "removed"), ("~", "modified"))
    counts = " ".join(f"{sign}{changed[kind]:,}" for sign, kind in signs if changed[kind])
    return found["digest"][:12], found["observedTime"], counts or "-"


def trouble(status: Mapping[str, Any]) -> list[str]:
    """What is wrong between DataSets and their sources, a line each."""
    wrong = (("Indexed", "False"), ("SourceChanged", "True"))
    lines = [
        f"{data_set['name']}: {condition['reason']}: {condition['message']}"
        for data_set in status["dataSets"]
        for condition in data_set["conditions"]
        if (condition["type"], condition["status"]) in wrong
    ]
    for mount in status["mounts"]:
        changed = mount["sourceChanged"]
        told = f"{files(changed['files'])} changed at the source, the last is {changed['lastPath']}"
        step = "what is not cached of it cannot be read. Mount again to see the new one."
        lines += [f"{mount['mountpoint']}: SourceChanged: {told}; {step}"] if changed["files"] else []
    return lines
