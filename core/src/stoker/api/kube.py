"""Types of Kubernetes that our kinds contain: metadata, conditions, selectors, references."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stoker.api.base import Count, Many, Message, Model, ObjectName, ShortText, Text, Time, Word


class Metadata(Model):
    """What Kubernetes keeps about every object; users write name, namespace, labels and annotations."""

    name: ObjectName
    namespace: Word = ""
    labels: dict[str, str] = Field({})
    annotations: dict[str, str] = Field({})
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int = 0
    finalizers: Many[str] = ()
    owner_references: Many[dict[str, Any]] = ()
    managed_fields: Many[dict[str, Any]] = ()
    self_link: str = ""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        """`kubectl --dry-run -o yaml` writes `creationTimestamp: null`."""
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class Condition(Model):
    """One observation about an object, as Kubernetes' own conditions are."""

    type: Annotated[str, Field(max_length=316)]
    """Which condition, a word."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: Count = 0
    """The generation of the spec that was looked at."""
    last_transition_time: Time
    """When status last changed."""
    reason: Text
    """Why, one word, the same in events, metrics and logs."""
    message: Message = ""
    """Why, for people, with the next step."""


class Reference(Model):
    """Names another object."""

    name: ObjectName
    """Name of the object."""


class LabelRequirement(Model):
    """One condition on a label."""

    key: ShortText
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How key and values relate."""
    values: Annotated[Many[Word], Field(max_length=64)] = ()
    """The values, for In and NotIn."""


class LabelSelector(Model):
    """Selects objects by labels; an empty one selects all."""

    match_labels: dict[str, Word] = Field({}, max_length=64)
    """Labels that must be there with exactly these values."""
    match_expressions: Annotated[Many[LabelRequirement], Field(max_length=64)] = ()
    """Further conditions; all must hold."""


class Toleration(Model):
    """A taint that is tolerated."""

    key: ShortText = ""
    """The taint's key; empty with operator Exists tolerates all."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How key and value relate."""
    value: Word = ""
    """The taint's value."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """The taint's effect; empty means any."""
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """How long NoExecute is tolerated; for ever when it is not given."""
