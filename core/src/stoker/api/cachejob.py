"""The kind CacheJob: one preload, pin, unpin, evict or verify, with progress."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stoker.api.base import (
    Count,
    Cron,
    Glob,
    Many,
    Model,
    Priority,
    ShareOfHundred,
    ShortText,
    Text,
    Time,
    TimeZone,
)
from stoker.api.datasetstatus import Conditions
from stoker.api.document import Kind
from stoker.api.duration import Duration, DurationField
from stoker.api.kube import Reference
from stoker.api.quantity import Quantity, Size

Operation = Literal["Preload", "Pin", "Unpin", "Evict", "Verify"]
JobPhase = Literal["Pending", "Running", "Suspended", "Succeeded", "PartiallySucceeded", "Failed", "Cancelled"]


class CacheJobSpec(Model):
    """One operation on the cached files of a DataSet."""

    data_set_ref: Reference
    """The DataSet, in the same namespace."""
    operation: Operation
    """What to do."""
    paths: Annotated[Many[Glob], Field(max_length=256)] = ("**",)
    """Globs on paths in the mount."""
    only_missing: bool = True
    """Leave out what is in cache already."""
    priority: Priority = 100
    """Jobs of higher priority go first."""
    bandwidth_limit: Size = Quantity.parse(0)
    """Bytes a second over the whole runtime; 0 means no limit."""
    suspend: bool = False
    """Pause; the job goes on where it stopped."""
    schedule: Cron = ""
    """Cron expression; empty to run once, now."""
    time_zone: TimeZone = "Etc/UTC"
    """IANA name of the time zone of schedule."""
    expected_within: DurationField = Duration.parse("0s")
    """When it takes longer, the condition Late is set; 0s means no matter."""
    cancel: bool = False
    """End the job."""
    failure_policy: Literal["Continue", "Stop"] = "Continue"
    """What a file that fails does to the others."""
    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How often the whole job is tried again."""
    active_deadline: DurationField = Duration.parse("0s")
    """When it takes longer, it is ended; 0s means never."""
    ttl_after_finished: DurationField = Duration.parse("24h")
    """How long a finished or failed job is kept."""


class Progress(Model):
    """How far the job is; never goes backwards."""

    files_total: Count = 0
    """Files to do."""
    files_done: Count = 0
    """Files that are done."""
    files_failed: Count = 0
    """Files that failed."""
    bytes_total: Count = 0
    """Bytes to do."""
    bytes_done: Count = 0
    """Bytes that are done."""
    bytes_per_second: Count = 0
    """The present rate."""
    percent: ShareOfHundred = 0
    """Share of the bytes that is done."""
    eta_seconds: Count = 0
    """Seconds left at the present rate."""


class Failure(Model):
    """One file that failed."""

    path: Annotated[str, Field(max_length=4096)]
    """Its path in the mount."""
    reason: Text
    """Why, one word."""
    message: Text = ""
    """Why, for people."""


class JobNode(Model):
    """What one node did."""

    name: ShortText
    """The node."""
    files_done: Count = 0
    """Files that are done."""
    bytes_done: Count = 0
    """Bytes that are done."""


class CacheJobStatus(Model):
    """What the operator observed."""

    phase: JobPhase = "Pending"
    """Where the job is."""
    progress: Progress = Progress()
    """How far it is."""
    failures: Annotated[Many[Failure], Field(max_length=100)] = ()
    """Files that failed, the first 100; `stoker failures` has all."""
    start_time: Time = ""
    """When it started."""
    completion_time: Time = ""
    """When it ended."""
    conditions: Conditions = ()
    """Complete, Failed, Suspended, Late."""
    nodes: Annotated[Many[JobNode], Field(max_length=1000)] = ()
    """What each node did."""


class CacheJob(Kind):
    """One operation on the cached files of a DataSet."""

    kind: Literal["CacheJob"]
    spec: CacheJobSpec
    status: CacheJobStatus | None = None
