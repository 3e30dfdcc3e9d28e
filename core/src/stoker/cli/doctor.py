"""`stoker doctor`: what this machine offers, what each missing thing costs, and what to do about it."""

from __future__ import annotations

import json

import click

_EXAMPLES = """\b
Examples:
  stoker doctor
  stoker doctor --json | jq '.checks[] | select(.state != "ok")'
"""


@click.command("doctor", epilog=_EXAMPLES, short_help="Check what this machine offers.")
@click.option("--json", "as_json", is_flag=True, help="As one document.")
def command(as_json: bool) -> int:
    """Check FUSE (by a real mount in a temporary folder), kernel, cache disk and limits.

    "warn" works, but costs what the line says; "fail" has to be mended before anything can be mounted (exit code 1).
    """
    from stoker.cli.checks import State, run_checks
    from stoker.cli.connect import settings

    checks = run_checks(settings())
    failed = any(check.state is State.FAIL for check in checks)
    if as_json:
        click.echo(json.dumps({"ok": not failed, "checks": [check.to_json() for check in checks]}))
    else:
        from stoker.cli.tables import checks_view, console

        console().print(checks_view(checks))
    return int(failed)
