"""The DataSets that this node serves, kept on disk without credentials: their limits hold after a restart, too."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import structlog

from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.reasons import Reason
from stoker.cache.accounts import AccountPolicy
from stoker.node.statefolder import name_of, write_json

log = structlog.get_logger("stoker.node")

_SUFFIX = ".json"


def policy_of(data_set: DataSet) -> AccountPolicy:
    """What a document says of the room that its data may take on this node."""
    cache = data_set.spec.cache
    return AccountPolicy(
        bytes=int(cache.quota) if cache.quota is not None else 0,
        inodes=cache.inodes or 0,
        priority=cache.priority,
        ttl_s=cache.ttl.seconds,
    )


class DataSets:
    """One file for each, named `<namespace>.<name>.json`."""

    def __init__(self, state_dir: str) -> None:
        self._root = os.path.join(state_dir, "datasets")
        self._known: dict[str, DataSet] = {}

    def load(self) -> list[DataSet]:
        """All that are on disk. One that cannot be read (of another version) is logged and left out."""
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        for name in sorted(os.listdir(self._root)):
            if not name.endswith(_SUFFIX):
                continue
            try:
                with open(os.path.join(self._root, name), encoding="utf-8") as file:
                    data_set = DataSet.from_body(json.load(file))
            except (StokerError, ValueError, OSError) as error:
                log.warning("a DataSet cannot be read; apply it again", file=name, error=str(error))
                continue
            self._known[data_set.full_name] = data_set
        return self.all()

    def all(self) -> list[DataSet]:
        return [self._known[name] for name in sorted(self._known)]

    def get(self, name: str) -> DataSet | None:
        """One by its full name."""
        return self._known.get(name)

    def need(self, name: str) -> DataSet:
        """The same. Raises StokerError DataSetNotFound."""
        data_set = self._known.get(name)
        if data_set is None:
            step = "mount it, or tell the node of it: stoker apply -f dataset.yaml"
            raise StokerError(Reason.DataSetNotFound, "this node does not know it", place=name, next_step=step)
        return data_set

    def put(self, data_set: DataSet) -> bool:
        """Keep a document. False: it is the one that was kept already."""
        document: dict[str, Any] = data_set.to_document()
        known = self._known.get(data_set.full_name)
        if known is not None and known.to_document() == document:
            return False
        write_json(self._path(data_set.full_name), document)
        self._known[data_set.full_name] = data_set
        return True

    def remove(self, name: str) -> None:
        """Forget one (`namespace/name`); one that is not known changes nothing."""
        self._known.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name_of(name) + _SUFFIX)
