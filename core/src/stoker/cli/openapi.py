"""`stoker openapi`: the document of the admin API."""

from __future__ import annotations

import click

_EXAMPLES = """\b
Examples:
  stoker openapi | jq '.paths | keys'
"""


@click.command("openapi", epilog=_EXAMPLES, short_help="The OpenAPI document of the node's API.")
def command() -> None:
    """Print the OpenAPI 3.1 document of the admin API, the one that a node serves at /v1/openapi.json."""
    from stoker.node.openapi import text

    click.echo(text(), nl=False)
