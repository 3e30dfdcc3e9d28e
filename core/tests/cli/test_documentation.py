"""What README, docs/S3.md and help show to be typed is understood by the command, and documents are accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from stoker.api.load import load_documents
from stoker.cli.main import cli
from stoker.cli.reference import _commands

ROOT = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").exists())
README = (ROOT / "README.md").read_text()
S3 = (ROOT / "docs" / "S3.md").read_text()
WATCHING = (ROOT / "docs/WATCHING.md").read_text()
REFRESH = (ROOT / "docs/REFRESH.md").read_text()
HELP = "\n".join(f"{command.help}\n{command.epilog or ''}" for _path, command in _commands(cli, ("stoker",)))


def lines(text: str) -> list[str]:
    """The command lines in a text, without pipes and explanations."""
    found = re.findall(r"^\s*(?:cat \S+ \| )?(stoker [a-z].*)$", text, re.MULTILINE)
    return sorted({re.split(r"\s{2,}|\s+[#|]", line)[0] for line in found})


@pytest.mark.parametrize("line", sorted({*lines(README), *lines(S3), *lines(WATCHING), *lines(REFRESH), *lines(HELP)}))
def test_every_line_parses(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    command.make_context("stoker", words, **cli.context_settings)  # raises UsageError for what it does not take


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_every_document_is_accepted(text: str) -> None:
    assert load_documents(text, "README.md")


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_every_target_of_make_is_there() -> None:
    targets = re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:^|`)make ([a-z0-9]+)", README, re.MULTILINE)) <= set(targets)
