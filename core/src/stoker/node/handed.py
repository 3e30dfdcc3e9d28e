"""What was handed over for each data set by a mount, a job or a command: its document, with credentials, so that its
sources can be listed again; and what is known to be so of it. In memory only, kept with the supervisor.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from stoker.api.dataset import DataSet
from stoker.node.conditions import Conditions
from stoker.node.keeper import Keeper
from stoker.node.resolve import Resolved, resolve
from stoker.node.store import Entry

_PREFIX = "dataset."


@dataclass(slots=True)
class Known:
    """`resolved`: the last document. `listed`: that of the current generation. Both hold secrets."""

    resolved: Resolved | None = field(default=None, repr=False)
    listed: Resolved | None = field(default=None, repr=False)
    conditions: Conditions = field(default_factory=Conditions)


class Handed:
    """By the full name of a data set."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._known: dict[str, Known] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        for key, entry in keeper.entries.items():
            if key.startswith(_PREFIX):
                self._known[key.removeprefix(_PREFIX)] = _from_json(entry.data)

    def get(self, name: str) -> Known:
        return self._known.setdefault(name, Known())

    def put(self, resolved: Resolved, *, listed: bool = False) -> None:
        """A document came, or (`listed`) a listing with it went well."""
        known = self.get(resolved.name)
        if known.resolved == resolved and (not listed or known.listed == resolved):
            return
        known.resolved = resolved
        known.listed = resolved if listed else known.listed
        self.keep(resolved.name)

    def keep(self, name: str) -> None:
        """What is known of it outlives the daemon."""
        entry = Entry(_PREFIX + name, {}, _to_json(self.get(name)))
        task = asyncio.create_task(self._keeper.keep(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def strip(self, name: str) -> None:
        """Without its credentials from now on."""
        known = self.get(name)
        if known.resolved is not None or known.listed is not None:
            known.resolved = known.listed = None
            self.keep(name)

    def forget(self, name: str) -> None:
        """With its credentials, here and with the supervisor."""
        self._known.pop(name, None)
        self._keeper.drop(_PREFIX + name)


def _to_json(known: Known) -> dict[str, Any]:
    return {
        "resolved": _order(known.resolved),
        "listed": _order(known.listed),
        "conditions": known.conditions.to_json(),
    }


def _from_json(data: dict[str, Any]) -> Known:
    return Known(_of_order(data["resolved"]), _of_order(data["listed"]), Conditions.from_json(data["conditions"]))


def _order(resolved: Resolved | None) -> dict[str, Any] | None:
    if resolved is None:
        return None
    credentials = {source.name: source.credentials.to_json() for source in resolved.sources}
    return {"document": resolved.data_set.to_document(), "credentials": credentials}


def _of_order(order: dict[str, Any] | None) -> Resolved | None:
    return None if order is None else resolve(DataSet.from_body(order["document"]), order["credentials"], "")
