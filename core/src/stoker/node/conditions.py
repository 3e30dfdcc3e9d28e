"""What is known to be so of a data set: conditions, as Kubernetes has them. Plain data; not for deciding anything."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from stoker.api.reasons import Reason
from stoker.node.catalogue import time_of

Type = Literal["Indexed", "SourceChanged"]
"""`Indexed`: the last listing of the sources went well. `SourceChanged`: an object of the current generation is not any
more what was listed."""

_MOST_TEXT = 1024


@dataclass(frozen=True, slots=True)
class Condition:
    """One of them."""

    type: Type
    status: Literal["True", "False"]
    reason: str
    message: str
    since: str

    def to_json(self) -> dict[str, str]:
        data = asdict(self)
        since = data.pop("since")
        return {**data, "lastTransitionTime": since}


@dataclass(slots=True)
class Conditions:
    """Those of one data set, each type once."""

    _by_type: dict[str, Condition] = field(default_factory=dict)

    def put(self, type_: Type, holds: bool, reason: Reason | str, message: str = "") -> bool:
        """Whether that is news."""
        status: Literal["True", "False"] = "True" if holds else "False"
        before = self._by_type.get(type_)
        text = message[:_MOST_TEXT]
        if before is not None and (before.status, before.reason, before.message) == (status, str(reason), text):
            return False
        since = before.since if before is not None and before.status == status else time_of(time.time())
        self._by_type[type_] = Condition(type_, status, str(reason), text, since)
        return True

    def holds(self, type_: Type) -> bool:
        found = self._by_type.get(type_)
        return found is not None and found.status == "True"

    def to_json(self) -> list[dict[str, str]]:
        return [condition.to_json() for condition in self._by_type.values()]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> Conditions:
        found = [{**each, "since": each["lastTransitionTime"]} for each in data]
        for each in found:
            del each["lastTransitionTime"]
        return cls({each["type"]: Condition(**each) for each in found})
