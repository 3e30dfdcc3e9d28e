"""`stoker s3-credentials`: keys to read a DataSet through the node's S3 endpoint, and their end."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlsplit

import click

from stoker.cli.connect import running_node

_EXAMPLES = """\b
Examples:
  eval "$(stoker s3-credentials imagenet)"  for boto3, the AWS CLI, pyarrow, s3fs and others
  stoker s3-credentials imagenet --json
  stoker s3-credentials imagenet --expires 12h --reader training-7
  stoker s3-credentials imagenet --revoke SKAE...
"""


@click.command("s3-credentials", epilog=_EXAMPLES, short_help="Keys for the node's S3 endpoint.")
@click.argument("name")
@click.option(
    "--expires", metavar="DURATION", default="0s", help="How long they are good, such as 12h; 0s: until revoked."
)
@click.option("--reader", metavar="TEXT", default="", help="Whose they are; you, unless said.")
@click.option("--bypass", is_flag=True, help="Reads with them go to the source, and nothing is stored.")
@click.option("--revoke", "revoked", metavar="ID", help="End the keys of this access key id, for good.")
@click.option("--env", "as_env", is_flag=True, help="Lines for a shell (the default).")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
def command(
    name: str, expires: str, reader: str, bypass: bool, revoked: str | None, as_env: bool, as_json: bool
) -> None:
    """Print endpoint, bucket and keys to read the mounted DataSet NAME by S3.

    The keys open this DataSet only. They stay good when the node is started again, until they expire or are revoked.
    The node serves S3 when STOKER_S3_PORT was set as it started.
    """
    if as_env and as_json:
        raise click.UsageError("Give one of --env and --json.", click.get_current_context())
    node = running_node()
    if revoked:
        answer = node.revoke_s3_key(revoked)
        click.echo(json.dumps(answer) if as_json else f"revoked {answer['revoked']} of {answer['reader']}")
        return
    seconds = _seconds(expires)
    keys = node.s3_key({"dataSet": name, "expiresSeconds": seconds, "reader": reader, "bypass": bypass})
    if node.host:
        keys["endpoint"] = _from_here(keys["endpoint"], node.host)
    click.echo(json.dumps(keys) if as_json else "\n".join(_lines(keys)))


def _from_here(endpoint: str, host: str) -> str:
    """A node that listens on all addresses names the one that its own machine uses."""
    parts = urlsplit(endpoint)
    if parts.hostname not in ("127.0.0.1", "::1"):
        return endpoint
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}"


def _seconds(text: str) -> int:
    from stoker.api.duration import Duration
    from stoker.api.errors import StokerError
    from stoker.api.fielderror import FieldError
    from stoker.api.reasons import Reason

    try:
        return int(Duration.parse(text).seconds)
    except FieldError as error:
        raise StokerError(Reason.InvalidValue, error.message, place="--expires", next_step=error.accepted) from None


def _lines(keys: dict[str, Any]) -> list[str]:
    """What SDKs and the AWS CLI look for. A token of other keys would not fit these."""
    values = {
        "AWS_ENDPOINT_URL_S3": keys["endpoint"],
        "AWS_ENDPOINT_URL": keys["endpoint"],
        "AWS_ACCESS_KEY_ID": keys["accessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["secretAccessKey"],
        "AWS_REGION": keys["region"],
        "AWS_DEFAULT_REGION": keys["region"],
        "STOKER_S3_BUCKET": keys["bucket"],
    }
    return [*(f"export {name}={shlex.quote(value)}" for name, value in values.items()), "unset AWS_SESSION_TOKEN"]
