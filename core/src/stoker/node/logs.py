"""JSON logs on standard error, one renderer for structlog and the standard library. Their shape: docs/WATCHING.md."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import structlog

from stoker.api.redact import redacted

_FIRST = ("timestamp", "level", "event", "role", "data_set", "reason")


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Without what is secret, whoever wrote it into an event or an exception."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def configure_logging(level: str, role: str) -> None:
    """Log as JSON lines with the role of this process bound."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    processors: list[structlog.types.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        _with_role(role),
        structlog.processors.format_exc_info,
        _in_order,
        structlog.processors.JSONRenderer(),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(foreign_pre_chain=shared, processors=processors))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    log = logging.getLogger("stoker")
    sys.excepthook = lambda *found: log.error("process failed", exc_info=found)
    threading.excepthook = lambda found: log.error("thread failed", exc_info=found.exc_value)
    sys.unraisablehook = lambda found: log.error(found.err_msg or "exception ignored", exc_info=found.exc_value)


def _with_role(role: str) -> structlog.types.Processor:
    """A thread has a context of its own."""

    def add(_logger: Any, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        event.setdefault("role", role)
        return event

    return add


def _in_order(_logger: Any, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """What every line has comes first."""
    return {**{name: event[name] for name in _FIRST if name in event}, **event}
