"""From `-f FILE` to what the admin API is sent: the documents of the file, with this user's credentials."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stoker.api.errors import StokerError
from stoker.api.reasons import Reason

if TYPE_CHECKING:
    from stoker.api.cacheruntime import CacheRuntime
    from stoker.api.dataset import DataSet

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Order:
    """One DataSet and the `file:line` where it begins."""

    data_set: DataSet
    place: str

    @property
    def name(self) -> str:
        return str(self.data_set.metadata.name)

    def to_json(self, **more: Any) -> dict[str, Any]:
        """The body of the request. Holds secrets: it goes into the node's socket and nowhere else."""
        document = self.data_set.to_document()
        return {"document": document, "place": self.place, "credentials": self.credentials(), **more}

    def credentials(self) -> dict[str, dict[str, str]]:
        """What this user has for each source. Secret."""
        from stoker.api.resolve import resolve_sources
        from stoker.sources.credentials import local_credentials

        sources = resolve_sources(self.data_set.spec)
        mode = self.data_set.spec.identity.mode
        return {source.name: local_credentials(source, mode).to_json() for source in sources}


@dataclass(frozen=True, slots=True)
class Documents:
    """What a file holds: DataSets, and at most one CacheRuntime that says how the node is set up."""

    orders: tuple[Order, ...]
    runtime: CacheRuntime | None

    def one(self, place: str) -> Order:
        if len(self.orders) == 1:
            return self.orders[0]
        text = f"it holds {len(self.orders)} DataSets; this command takes one"
        raise StokerError(Reason.InvalidUsage, text, place=place, next_step="give it a file with one.")


def file_option(command: Decorated) -> Decorated:
    """`-f FILE`, as kubectl has it."""
    text = "The DataSet, as YAML or JSON; several documents in one file; - is standard input."
    return click.option("-f", "--filename", "file", required=True, metavar="FILE", help=text)(command)


def runtime_option(command: Decorated) -> Decorated:
    """`--runtime FILE`: a CacheRuntime in a file of its own."""
    text = "A CacheRuntime (disks, quotas), when this command starts the node; it may also stand in the FILE of -f."
    return click.option("--runtime", metavar="FILE", help=text)(command)


def read(path: str, runtime_path: str | None = None) -> Documents:
    """The documents of `path`, and the CacheRuntime of `runtime_path` or of `path`. Raises StokerError."""
    from stoker.api.dataset import DataSet
    from stoker.api.load import read_documents

    documents = read_documents(path)
    orders = tuple(
        Order(document.model, document.place) for document in documents if isinstance(document.model, DataSet)
    )
    if not orders:
        step = "write one, such as examples/five-line.yaml."
        raise StokerError(Reason.UnknownKind, "there is no DataSet in it", place=path, next_step=step)
    _check_names(orders)
    return Documents(orders, read_runtime(runtime_path) if runtime_path else _runtime(documents, path))


def read_runtime(path: str) -> CacheRuntime:
    """The one CacheRuntime of a file. Raises StokerError."""
    from stoker.api.load import read_documents

    runtime = _runtime(read_documents(path), path)
    if runtime is None:
        step = "write one with spec.tiers, or leave --runtime out."
        raise StokerError(Reason.UnknownKind, "there is no CacheRuntime in it", place=path, next_step=step)
    return runtime


def _runtime(documents: list[Any], path: str) -> CacheRuntime | None:
    from stoker.api.cacheruntime import CacheRuntime

    found = [document.model for document in documents if isinstance(document.model, CacheRuntime)]
    if len(found) > 1:
        text, step = f"it holds {len(found)} CacheRuntimes", "a node has one; leave the others out."
        raise StokerError(Reason.InvalidUsage, text, place=path, next_step=step)
    return found[0] if found else None


def _check_names(orders: tuple[Order, ...]) -> None:
    seen: dict[str, str] = {}
    for order in orders:
        if order.name in seen:
            text, step = f"{order.name!r} is also the name of the DataSet at {seen[order.name]}", "give it another one."
            raise StokerError(Reason.InvalidValue, text, place=f"{order.place}: metadata.name", next_step=step)
        seen[order.name] = order.place


def mountpoint_of(order: Order, base: str, *, alone: bool) -> str:
    """One DataSet is mounted at `base`, several below it by their names."""
    base = os.path.abspath(base)
    return base if alone else os.path.join(base, order.name)
