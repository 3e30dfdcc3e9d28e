"""`stoker node`: the process behind the mounts, in the foreground; or end the one in the background."""

from __future__ import annotations

import click

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cli import documents
from stoker.cli.connect import running_node, settings, with_runtime

_EXAMPLES = """\b
Examples:
  stoker node                               as a service would run it
  stoker node --runtime cache.yaml          with the disks and quotas of a CacheRuntime
  stoker node --stop
\b
Environment:
  STOKER_STATE_DIR, STOKER_RUN_DIR, STOKER_CACHE_DIR    where it keeps manifests, sockets and cached data
  STOKER_CACHE_QUOTA                                    500Gi, or -10Gi: leave so much of the disk free (default)
  STOKER_S3_PORT, STOKER_S3_BIND                        the S3 endpoint: 0 is off (default), and 127.0.0.1
  STOKER_METRICS_PORT, STOKER_METRICS_ADDRESS           GET /metrics and /healthz over TCP; 0: not (default), 127.0.0.1
  STOKER_ADMIN_PORT, STOKER_ADMIN_ADDRESS               the admin API with mutual TLS; 0: not (default), 127.0.0.1
  STOKER_ADMIN_CERT_FILE, STOKER_ADMIN_KEY_FILE         the node's certificate and key, in PEM
  STOKER_ADMIN_CLIENT_CA_FILE, STOKER_ADMIN_ALLOWED     who signs clients; names of those let in (default: all signed)
  STOKER_LOG_LEVEL                                      debug, info (default), warning or error
"""


@click.command("node", epilog=_EXAMPLES, short_help="Run the node in the foreground, or end it.")
@documents.runtime_option
@click.option("--stop", is_flag=True, help="Unmount everything and end the node that runs.")
def command(runtime: str | None, stop: bool) -> int:
    """Run the node of this user until SIGTERM. Commands start one in the background when they need it, so this is for
    services, and for whoever wants to see its log.
    """
    if stop:
        return _stop()
    from stoker.node.launch import become_node, is_running

    chosen = settings()
    if is_running(chosen):
        text, step = "a node of this user runs already", "use it, or end it: stoker node --stop"
        raise StokerError(Reason.NodeAlreadyRunning, text, place=chosen.state_dir, next_step=step)
    become_node(with_runtime(chosen, documents.read_runtime(runtime) if runtime else None))
    return 1


def _stop() -> int:
    try:
        running_node().shutdown()
        click.echo("the node ends")
    except StokerError as error:
        if error.reason is not Reason.NodeNotRunning:
            raise
        click.echo("no node is running")
    return 0
