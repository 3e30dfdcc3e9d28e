"""To the node of this user: the one that runs, or one started now with the CacheRuntime that was given."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.client import AdminClient

if TYPE_CHECKING:
    from stoker.api.cacheruntime import CacheRuntime
    from stoker.node.settings import Settings

_IDLE_EXIT_S = 10.0  # a node that a command started ends this long after its last mount and job


def settings() -> Settings:
    """The settings of this user's node, from STOKER_* variables. Raises StokerError."""
    from pydantic import ValidationError

    from stoker.api.errors import StokerError
    from stoker.api.reasons import Reason
    from stoker.node.settings import Settings

    try:
        chosen = Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = f"STOKER_{'.'.join(str(part) for part in first['loc']).upper()}"
        text = f"{first['input']!r} is not accepted ({first['msg'].lower()})"
        raise StokerError(
            Reason.InvalidValue, text, place=place, next_step="unset the variable, or correct it."
        ) from None
    _check_quantities(chosen)
    return chosen


def _check_quantities(chosen: Settings) -> None:
    """Here, where a person reads it, and not in the log of a node that cannot start."""
    from stoker.api.errors import StokerError
    from stoker.api.fielderror import FieldError
    from stoker.api.quantity import Quantity
    from stoker.api.reasons import Reason

    for name in ("cache_quota", "reserve_free"):
        try:
            Quantity.parse(getattr(chosen, name))
        except FieldError as error:
            place = f"STOKER_{name.upper()}"
            raise StokerError(Reason.InvalidValue, error.message, place=place, next_step=error.accepted) from None


def running_node() -> AdminClient:
    """The node that runs; a call raises StokerError(NodeNotRunning) when there is none."""
    return _elsewhere() or AdminClient(settings().admin_socket)


def _elsewhere() -> AdminClient | None:
    """The node of --node, when one was named. Raises StokerError."""
    context = click.get_current_context(silent=True)
    options = context.find_root().params if context is not None else {}
    if not options.get("node"):
        return None
    from stoker.cli.remote import Remote

    given = (options.get(name) or "" for name in ("client_cert", "client_key", "ca"))
    remote = Remote.of(str(options["node"]), *given)
    return AdminClient(remote.place, remote)


def start_node(runtime: CacheRuntime | None) -> AdminClient:
    """The node that runs, else a new one in the background. Raises StokerError."""
    if (elsewhere := _elsewhere()) is not None:
        return elsewhere
    from stoker.node.launch import ensure_node, is_running

    chosen = settings()
    if not is_running(chosen):
        found = {} if "idle_exit_seconds" in chosen.model_fields_set else {"idle_exit_seconds": _IDLE_EXIT_S}
        chosen = with_runtime(chosen.model_copy(update=found), runtime)
    elif runtime is not None:
        click.echo("The node runs already: its CacheRuntime stays as it is (stoker node --stop ends it).", err=True)
    return AdminClient(ensure_node(chosen))


def again_if_gone(work: Callable[[], dict[str, Any]], runtime: CacheRuntime | None) -> dict[str, Any]:
    """Ask the node; a node that ended, idle, while the request was on its way is started once more."""
    from stoker.api.errors import StokerError
    from stoker.api.reasons import Reason

    try:
        return work()
    except StokerError as error:
        if error.reason is not Reason.NodeNotRunning:
            raise
    start_node(runtime)
    return work()


def with_runtime(chosen: Settings, runtime: CacheRuntime | None) -> Settings:
    """The settings with `runtime`, which the node finds as a file beside its state."""
    from stoker.node.launch import prepare
    from stoker.node.statefolder import write_json

    if runtime is None:
        return chosen
    prepare(chosen)
    path = os.path.join(chosen.state_dir, "runtime.json")
    write_json(path, runtime.to_document())
    return chosen.model_copy(update={"runtime_file": path})
