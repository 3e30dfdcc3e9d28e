"""Defaults that depend on other fields or on the place, which the documents leave open: decided here, in code.

A resolved DataSet holds no questions any more, except `type` when only the store can tell (None).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoker.api.combinations import DataSetType
from stoker.api.dataset import DataSetSpec
from stoker.api.globs import Selection
from stoker.api.mount import Mount, Profile
from stoker.api.source import DataSetSource
from stoker.api.uri import Uri, parse_uri

_MIB = 1 << 20
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class ResolvedSource:
    """One source with its name and its path in the mount."""

    name: str
    uri: Uri
    path: str
    source: DataSetSource

    def selection(self) -> Selection:
        return Selection.compile(self.source.include, self.source.exclude)


@dataclass(frozen=True, slots=True)
class ReadTuning:
    """How reads behave: what the document says, else its profile, else the defaults."""

    read_ahead_max: int
    read_ahead_threads: int
    """0 = four for each core."""
    block_size: int
    memory_cache: int


# read-ahead max, threads, block size, memory: what the way of reading asks for.
_PROFILES: dict[Profile, ReadTuning] = {
    "": ReadTuning(64 * _MIB, 0, 2 * _MIB, 128 * _MIB),
    # One reader: everything ahead of it may be in flight.
    "sequential-once": ReadTuning(256 * _MIB, 0, 8 * _MIB, 512 * _MIB),
    # Many readers share the link: each a shorter way ahead, the memory for all of them.
    "parallel-once": ReadTuning(32 * _MIB, 0, 4 * _MIB, 512 * _MIB),
    # A file is smaller than a block: many requests at once are what counts.
    "small-files-once": ReadTuning(4 * _MIB, 128, 1 * _MIB, 128 * _MIB),
    "small-files-epochs": ReadTuning(4 * _MIB, 64, 1 * _MIB, 128 * _MIB),
    # Nothing that was not asked for.
    "random": ReadTuning(0, 0, _MIB // 4, 128 * _MIB),
}


def resolve_sources(spec: DataSetSpec) -> tuple[ResolvedSource, ...]:
    """The sources in their order, each with a unique name and a path."""
    names = _names(spec.sources)
    alone = len(spec.sources) == 1
    return tuple(
        ResolvedSource(name, parse_uri(source.uri), source.path or ("/" if alone else f"/{name}"), source)
        for name, source in zip(names, spec.sources, strict=True)
    )


def resolve_type(spec: DataSetSpec) -> DataSetType | None:
    """What the document says or its uris show; None when the store must tell whether the one uri names an object."""
    if spec.type is not None:
        return spec.type
    if len(spec.sources) > 1:
        return "uri_folder"
    uri = parse_uri(spec.sources[0].uri)
    if uri.scheme == "https":
        return "uri_file"
    return "uri_folder" if uri.is_folder else None


def resolve_tuning(mount: Mount) -> ReadTuning:
    """Read-ahead, block size and memory of a mount."""
    preset = _PROFILES[mount.profile]
    return ReadTuning(
        _first(mount.read_ahead.max, preset.read_ahead_max),
        _first(mount.read_ahead.threads, preset.read_ahead_threads),
        _first(mount.block_size, preset.block_size),
        _first(mount.memory_cache, preset.memory_cache),
    )


def _first(written: int | None, default: int) -> int:
    return default if written is None else int(written)


def _names(sources: tuple[DataSetSource, ...]) -> list[str]:
    """The names as written, and for the others the last part of the uri, with -2, -3 behind it where it is taken."""
    taken = {source.name for source in sources if source.name is not None}
    names = []
    for source in sources:
        name = source.name or _free_name(_name_of(parse_uri(source.uri)), taken)
        taken.add(name)
        names.append(name)
    return names


def _name_of(uri: Uri) -> str:
    last = uri.last_component.partition(b"?")[0] if uri.scheme == "https" else uri.last_component
    text = last.decode("utf-8", "replace") or uri.store.rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:_LONGEST_NAME].strip("-_.")
    return name or "source"


def _free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        ending = f"-{number}"
        candidate = name[: _LONGEST_NAME - len(ending)] + ending
    return candidate
