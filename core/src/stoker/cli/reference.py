"""docs/CLI.md, written from the commands' own help.

`python -m stoker.cli.reference` writes the file; with `--check` it only says whether the file is what it would write.
"""

from __future__ import annotations

import sys

import click

from stoker.api.generated import write_or_check
from stoker.cli.main import cli

PATH = "docs/CLI.md"
_WIDTH = 100

_INTRODUCTION = """\
# The `stoker` command

Written from the commands' own help (`python -m stoker.cli.reference`); `make check` holds the two together.

| exit code | means |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | the command line or the document is wrong: the same command can never succeed |
| 3 | partly done: some files of a preload, or some of several mounts, failed or were interrupted |
| 130 | interrupted |

An error is one line on standard error: `Reason: place: message. Next: step`. The reason is a word that stays the same
from release to release; `--debug` shows the trace as well.
"""


def reference() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for path, command in _commands(cli, ("stoker",)):
        parts.append(f"\n## {' '.join(path)}\n```\n{_help(command, path)}\n```\n")
    return "".join(parts)


def _commands(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                found += _commands(below, (*path, name))
    return found


def _help(command: click.Command, path: tuple[str, ...]) -> str:
    settings = {"terminal_width": _WIDTH, "max_content_width": _WIDTH, "help_option_names": ["-h", "--help"]}
    context = click.Context(command, info_name=" ".join(path), **settings)  # type: ignore[arg-type]
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def main(arguments: list[str]) -> int:
    return write_or_check(PATH, reference(), arguments, "stoker.cli.reference")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
