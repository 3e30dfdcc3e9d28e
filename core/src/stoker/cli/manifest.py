"""`stoker manifest`: what a generation holds, and what changed between two."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from typing import TYPE_CHECKING, Any

import click

from stoker.api.errors import StokerError
from stoker.api.names import full_name
from stoker.api.reasons import Reason
from stoker.cli.connect import settings
from stoker.cli.rows import change_line, file_line, headline, hidden_line, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoker.manifest.manifest import Manifest
    from stoker.manifest.show import FileRow

_SHOW = """\b
Examples:
  stoker manifest show imagenet             the newest generation of a DataSet on this node
  stoker manifest show imagenet --hidden    keys that a folder cannot show, and why
  stoker manifest show imagenet@3f2a        an older generation, by the beginning of its digest
  stoker manifest show ./copy.manifest --json --limit 0
"""
_DIFF = """\b
Examples:
  stoker manifest diff imagenet             the newest generation against the one before it
  stoker manifest diff old.manifest imagenet
"""


@click.group("manifest", short_help="What a generation holds, and what changed.")
def command() -> None:
    """Look into manifests: the files that hold what was listed. A GENERATION is a file, the name of a DataSet that this
    node listed, or NAME@DIGEST. The format is in docs/design/manifest.md.
    """


@command.command("show", epilog=_SHOW, short_help="What a generation holds.")
@click.argument("generation")
@click.option("--hidden", "hidden_keys", is_flag=True, help="The first keys of each reason that are not shown.")
@click.option("--path", "paths", multiple=True, metavar="GLOB", help="Only files whose path in the mount matches.")
@click.option(
    "--json", "as_json", is_flag=True, help="A line of JSON for the generation, then one for each file or key."
)
@click.option("--limit", type=click.IntRange(min=0), default=1000, show_default=True, help="Files; 0 means all.")
def show(generation: str, hidden_keys: bool, paths: tuple[str, ...], as_json: bool, limit: int) -> None:
    """Show sources, counts and files of GENERATION, in the order of their paths."""
    from stoker.api.globs import Globs
    from stoker.manifest.show import files, hidden

    path = _resolve(generation)
    with contextlib.closing(_open(path)) as manifest:
        for line in [json.dumps(summary(manifest, path))] if as_json else headline(manifest, path):
            click.echo(line)
        if hidden_keys:
            for key in hidden(manifest):
                click.echo(json.dumps(key._asdict()) if as_json else hidden_line(key))
        else:
            _print_files(files(manifest, Globs.compile(paths or ("**",))), as_json=as_json, limit=limit)


def _print_files(rows: Iterator[FileRow], *, as_json: bool, limit: int) -> None:
    for row in itertools.islice(rows, limit or None):
        click.echo(json.dumps(row._asdict()) if as_json else file_line(row))
    if limit and not as_json and next(rows, None) is not None:
        click.echo(f"... the first {limit:,} files; --limit 0 shows all")


@command.command("diff", epilog=_DIFF, short_help="What changed between two generations.")
@click.argument("older")
@click.argument("newer", required=False)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each change.")
def diff(older: str, newer: str | None, as_json: bool) -> None:
    """Show what was added, removed and changed from OLDER to NEWER. With one name: its newest two generations."""
    from stoker.manifest.show import changes

    before, after = (_resolve(older), _resolve(newer)) if newer else _newest_two(older)
    counts = {"added": 0, "removed": 0, "changed": 0}
    with contextlib.closing(_open(before)) as old, contextlib.closing(_open(after)) as new:
        for row in changes(old, new):
            counts[row.kind] += 1
            click.echo(json.dumps(row._asdict()) if as_json else change_line(row))
    if not as_json:
        click.echo(", ".join(f"{count:,} {kind}" for kind, count in counts.items()))


def _open(path: str) -> Manifest:
    from stoker.manifest.manifest import Manifest

    try:
        return Manifest.open(path)
    except OSError as error:
        text = os.strerror(error.errno or 0).lower()
        step = "name a manifest file, or a DataSet that this node listed."
        raise StokerError(Reason.FileNotFound, text, place=path, next_step=step) from None


def _resolve(name: str) -> str:
    """The file of a generation. Raises StokerError(FileNotFound)."""
    if os.path.isfile(name) or name.endswith(".manifest"):
        return name
    data_set, _at, digest = name.partition("@")
    for known in _known(data_set):
        if known["digest"].startswith(digest):
            return str(known["path"])
    text = "this node has no generation of that name"
    raise StokerError(Reason.FileNotFound, text, place=name, next_step="see what is mounted: stoker status")


def _known(data_set: str) -> list[dict[str, Any]]:
    """On disk, newest first: no node has to run."""
    from stoker.node.generations import Generations

    return Generations(settings().state_dir).known(full_name(data_set))


def _newest_two(name: str) -> tuple[str, str]:
    known = _known(name)
    if len(known) < 2:
        text = f"this node has {len(known)} generation{'s' * (len(known) != 1)} of it, and two are compared"
        raise StokerError(Reason.FileNotFound, text, place=name, next_step="mount it again later, or name two files.")
    return str(known[1]["path"]), str(known[0]["path"])
