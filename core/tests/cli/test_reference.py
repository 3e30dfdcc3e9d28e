"""docs/CLI.md is what the commands say of themselves, and they say it all."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from stoker.cli.main import cli
from stoker.cli.reference import PATH, _commands, reference

COMMANDS = [(" ".join(path), command) for path, command in _commands(cli, ("stoker",))]


def test_the_page_is_up_to_date() -> None:
    root = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").exists())
    assert (root / PATH).read_text() == reference()


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _command in COMMANDS])
def test_every_command_and_option_is_explained(name: str, command: click.Command) -> None:
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"
    if not isinstance(command, click.Group):
        assert command.epilog
        assert f"{name} " in command.epilog
