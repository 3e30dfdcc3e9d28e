"""One route of the admin API: what it takes, what it answers, what it does. The OpenAPI document is made of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stoker.api.base import Model
from stoker.api.reasons import Reason

if TYPE_CHECKING:
    from aiohttp import web

    from stoker.node.daemon import Daemon

MAX_POLL_S = 60.0

Progress = Callable[[int], None]
Work = Callable[[Progress], Awaitable[dict[str, Any]]]
Flag = Literal["0", "1", "false", "true"]


class Query(Model):
    """The fields after the `?`: each at most once, none unknown. Numbers are read from their text."""

    model_config = ConfigDict(strict=False)


class Answer(Model):
    """An answer, in which null may stand."""

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, data: Any) -> Any:
        return data


class Nothing(Query):
    """No query, and no body."""


class Poll(Query):
    """A long poll: the answer comes as soon as the thing is newer than `version`, `timeout` seconds later at most."""

    version: Annotated[int, Field(ge=-1, lt=1 << 63)] = -1
    """The `version` of the last answer; -1 is older than all."""
    timeout: Annotated[float, Field(ge=0)] = 0
    """Seconds to wait; 60 at most, and more counts as that."""

    @property
    def seconds(self) -> float:
        return min(self.timeout, MAX_POLL_S)


Q = TypeVar("Q", bound=Query)
B = TypeVar("B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Asked(Generic[Q, B]):
    """A request whose parts were checked."""

    path: Mapping[str, str]
    query: Q
    body: B


@dataclass(frozen=True, slots=True)
class Lines:
    """An answer in lines of JSON: progress now and then, and the result or the error as the last one."""

    work: Work


@dataclass(frozen=True, slots=True)
class Route(Generic[Q, B]):
    """`answer`: the model of the answer, or of the last line when `lines` is set. `errors`: the handler's own reasons;
    those of any request (`problems.ALWAYS`, `problems.WITH_BODY`) need not be named."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Callable[[Daemon, Asked[Q, B]], Awaitable[dict[str, Any] | Lines | web.StreamResponse]]
    summary: str
    answer: type[BaseModel] | None
    query: type[Q] | None = None
    body: type[B] | None = None
    errors: tuple[Reason, ...] = ()
    lines: bool = False
    statuses: tuple[int, ...] = ()
    """Of answers that are no problems, beside 200."""
    content_type: str = "application/json"
