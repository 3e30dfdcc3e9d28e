"""Log lines of the two processes that stay small, supervisor and template: one shape with those of `logs.py`."""

from __future__ import annotations

import json
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from stoker.api.redact import redacted

LEVELS = ("debug", "info", "warning", "error")


class PlainLog:
    """The log of one process, on standard error."""

    def __init__(self, role: str, level: str = "info") -> None:
        self._role = role
        self._least = LEVELS.index(level)

    def line(self, level: str, event: str, **fields: Any) -> None:
        if LEVELS.index(level) < self._least:
            return
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = {"timestamp": now, "level": level, "event": event, "role": self._role, **fields}
        print(redacted(json.dumps(line)), file=sys.stderr, flush=True)

    def failed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """What ends the process: for `sys.excepthook`."""
        text = "".join(traceback.format_exception(kind, error, trace))
        self.line("error", "process failed", error=repr(error), exception=text)
