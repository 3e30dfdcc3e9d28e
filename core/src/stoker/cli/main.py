"""`stoker`: the group of commands, and the one place where an error becomes one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from stoker import __version__
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

FAILED, USAGE, PARTLY, INTERRUPTED = 1, 2, 3, 130

# What is wrong with the command line or the document, so the same command can never succeed: exit code 2.
_USAGE = frozenset(
    {
        Reason.InvalidUsage,
        Reason.FileNotFound,
        Reason.InvalidYaml,
        Reason.UnknownKind,
        Reason.UnknownField,
        Reason.InvalidValue,
        Reason.MissingField,
        Reason.UnsupportedCombination,
        Reason.UnknownScheme,
    }
)

# Command -> module; imported when asked for, so that each command starts fast.
_COMMANDS = {
    "mount": "stoker.cli.mount",
    "preload": "stoker.cli.preload",
    "status": "stoker.cli.status",
    "why-slow": "stoker.cli.whyslow",
    "unmount": "stoker.cli.unmount",
    "apply": "stoker.cli.apply",
    "refresh": "stoker.cli.refresh",
    "forget": "stoker.cli.forget",
    "manifest": "stoker.cli.manifest",
    "s3-credentials": "stoker.cli.s3keys",
    "doctor": "stoker.cli.doctor",
    "node": "stoker.cli.node",
    "openapi": "stoker.cli.openapi",
}


# What works on this machine alone: its folders, its kernel, its files.
_HERE = frozenset({"mount", "unmount", "manifest", "doctor", "node"})


class _Commands(click.Group):
    """Commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name]).command
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong command line or document, 3 partly done, 130 interrupted.",
)
@click.version_option(__version__, prog_name="stoker")
@click.option("--debug", is_flag=True, help="Show the trace of an error as well.")
@click.option("--node", metavar="URL", envvar="STOKER_NODE", help="A node elsewhere: https://host:port.")
@click.option("--client-cert", metavar="FILE", envvar="STOKER_CLIENT_CERT", help="Your certificate for it, in PEM.")
@click.option("--client-key", metavar="FILE", envvar="STOKER_CLIENT_KEY", help="Its key, when it is not in there.")
@click.option("--ca", metavar="FILE", envvar="STOKER_CA", help="Who signed the certificate of that node.")
@click.pass_context
def cli(context: click.Context, /, node: str | None, **_options: object) -> None:
    """Training data from object stores as ordinary files, cached on local disks.

    \b
      stoker mount -f dataset.yaml ./data      mount what the DataSet describes
      stoker preload -f dataset.yaml           bring all of it into the cache
      stoker status                            what is mounted, and how much is cached
      stoker unmount ./data                    take the mount away
    """
    if node and context.invoked_subcommand in _HERE:
        text = f"{context.invoked_subcommand} works on this machine alone, not with --node or STOKER_NODE"
        raise click.UsageError(text, context)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Never returns."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]  # wherever it stands
    try:
        code = _run(arguments)
    except Exception as error:
        if debug:
            traceback.print_exc()
        code = _report(error)
    _leave(code)


def _run(arguments: list[str]) -> int:
    try:
        result: Any = cli.main(arguments, prog_name="stoker", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `stoker ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _report(error: Exception) -> int:
    known = as_stoker_error(error)
    click.echo(one_line(known), err=True)
    return exit_code(known)


def as_stoker_error(error: Exception) -> StokerError:
    """What went wrong with reason, place and next step, whatever was raised."""
    if isinstance(error, StokerError):
        return error
    if isinstance(error, click.ClickException):
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "stoker"
        message = error.format_message()
        return StokerError(Reason.InvalidUsage, message[:1].lower() + message[1:], next_step=f"{path} --help")
    step = "run the command again with --debug and report what it prints."
    return StokerError(Reason.Internal, f"{type(error).__name__}: {error}", next_step=step)


def one_line(error: StokerError) -> str:
    """The error as one line, whatever its parts contain."""
    return " ".join(error.line().split())


def exit_code(error: StokerError) -> int:
    return USAGE if error.reason in _USAGE else FAILED


def _leave(code: int) -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
