"""The kind DataSet: what, from where, as whom, how to cache and mount it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stoker.api.base import (
    Count,
    Cron,
    Glob,
    Many,
    Model,
    NamespaceName,
    Priority,
    ShortText,
    SmallCount,
    TimeZone,
    Word,
)
from stoker.api.combinations import DataSetType, Mode, check_combination
from stoker.api.datasetstatus import DataSetStatus
from stoker.api.document import Kind
from stoker.api.duration import Duration, DurationField
from stoker.api.fielderror import FieldError
from stoker.api.identity import Identity
from stoker.api.kube import Reference
from stoker.api.mount import Mount
from stoker.api.quantity import Quantity, SignedSize, Size
from stoker.api.reasons import Reason
from stoker.api.replicas import Replicas
from stoker.api.source import DataSetSource


class Cache(Model):
    """How the nodes keep what was read."""

    policy: Literal["Cache", "Bypass", "WholeFile"] = "Cache"
    """Cache keeps the pages that were read. Bypass reads through and keeps nothing. WholeFile: open waits for the whole
    file, which streams if it cannot fit."""
    quota: SignedSize | None = None
    """Bytes this DataSet may hold on one node, or, with a minus, how much of the cache it leaves to others; without it
    the runtime's limit is the only one."""
    inodes: Count | None = None
    """Files this DataSet may hold on one node; without it the runtime's limit is the only one."""
    priority: Priority = 100
    """Low goes first when room is needed."""
    ttl: DurationField = Duration.parse("0s")
    """How long something stays after its last use; 0s means until the room is needed."""
    distribution: Literal["Local", "Sharded", "Replicated"] = "Replicated"
    """Local: each node for itself. Sharded: one node holds each part. Replicated: as many as replicas says."""
    replicas: Replicas = 1
    """Nodes that hold each part, or All."""


class Preload(Model):
    """What is loaded before it is read."""

    when: Literal["Never", "OnReady", "OnChange", "Schedule"] = "Never"
    """Never, once after the first listing, after each new generation, or by schedule."""
    schedule: Cron = ""
    """Cron expression, for when Schedule."""
    time_zone: TimeZone = "Etc/UTC"
    """IANA name of the time zone of schedule."""
    paths: Annotated[Many[Glob], Field(max_length=256)] = ("**",)
    """Globs on paths in the mount."""
    from_history: bool = False
    """Load what earlier jobs of this DataSet read, in their order, instead of paths."""
    priority: Priority = 100
    """Loads of higher priority go first."""
    bandwidth_limit: Size = Quantity.parse(0)
    """Bytes a second over the whole runtime; 0 means no limit."""

    @model_validator(mode="after")
    def _schedule_goes_with_when(self) -> Self:
        if self.when == "Schedule" and not self.schedule:
            accepted = 'Write one such as "30 2 * * *".'
            raise FieldError("when Schedule needs it", accepted=accepted, reason=Reason.MissingField, at=("schedule",))
        if self.when != "Schedule" and self.schedule:
            raise FieldError(
                f"it has no use with when {self.when}",
                accepted="Set when: Schedule, or remove schedule.",
                reason=Reason.UnsupportedCombination,
                at=("schedule",),
            )
        return self


class Refresh(Model):
    """How changes at the source come in."""

    interval: DurationField = Duration.parse("0s")
    """How often the sources are listed again; 0s means never by itself."""
    on_change: Literal["NewMounts"] = "NewMounts"
    """Mounts made later show the new generation; running ones keep theirs."""


class PublishAs(Model):
    """The DataSet that is made of what was written."""

    name: ShortText = ""
    """Its name; empty for none."""
    version: Word = ""
    """Its version."""


class Output(Model):
    """How what pods write gets to the store."""

    publish_as: PublishAs = PublishAs()
    """The DataSet that is made of what was written when the pod ends."""
    durability: Literal["Staged", "Store"] = "Staged"
    """When fsync returns: on the local disk, or in the store."""
    parallel_uploads: SmallCount = 0
    """Uploads at once; 0 means by cores."""
    staging: Size = Quantity.parse("200Gi")
    """Local disk for what waits for its upload."""
    write_queue: Size = Quantity.parse("512Mi")
    """Memory for what waits for the local disk."""
    overwrite: bool = False
    """Whether existing objects may be replaced."""
    delete: bool = False
    """Whether existing objects may be removed."""


class Access(Model):
    """Who else may use the DataSet."""

    allowed_namespaces: Annotated[Many[NamespaceName], Field(max_length=256)] = ()
    """Namespaces whose DataSets may use this one by dataset://namespace/name/sub/path. In identity mode Secret and
    Managed those readers use this DataSet's rights."""


class Asset(Model):
    """The name under which versions of the same data go, such as imagenet:3; unique in the namespace."""

    name: Word = ""
    """Name of the asset."""
    version: Word = ""
    """Version of the asset, in quotes when it is a number."""


class DataSetSpec(Model):
    """What, from where, as whom, how to cache and mount it."""

    type: DataSetType | None = None
    """A folder, one file, or a table with its definition. By default uri_file when the uri names one object, uri_folder
    otherwise."""
    mode: Mode = "ro_mount"
    """How pods get it. Inputs: ro_mount, download, direct, eval_mount, eval_download. Outputs: rw_mount, upload, direct
    with an output block."""
    sources: Annotated[Many[DataSetSource], Field(min_length=1, max_length=64)]
    """One or more: one tree out of many stores."""
    identity: Identity = Identity()
    """With whose rights the sources are read."""
    runtime_ref: Reference | None = None
    """The CacheRuntime. By default the only one, or the one annotated as default."""
    cache: Cache = Cache()
    """How the nodes keep what was read."""
    pin: Annotated[Many[Glob], Field(max_length=256)] = ()
    """Globs on paths in the mount of what must stay in cache: a guarantee."""
    preload: Preload = Preload()
    """What is loaded before it is read."""
    refresh: Refresh = Refresh()
    """How changes at the source come in."""
    mount: Mount = Mount()
    """How files look and how reads behave."""
    output: Output | None = None
    """How what pods write gets to the store, for the output modes."""
    access: Access = Access()
    """Who else may use the DataSet."""
    asset: Asset = Asset()
    """The name under which versions of the same data go."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_combination(self.type, self.mode, self.output is not None)
        seen: set[str] = set()
        for index, source in enumerate(self.sources):
            if source.name in seen:
                at = ("sources", index, "name")
                raise FieldError(f"{source.name!r} is the name of two sources", accepted="Give each its own.", at=at)
            if source.name is not None:
                seen.add(source.name)
        if self.type == "uri_file" and len(self.sources) > 1:
            raise FieldError(
                f"uri_file has one source, not {len(self.sources)}",
                accepted="Remove type: several files make a folder.",
                reason=Reason.UnsupportedCombination,
                at=("type",),
            )
        if self.type == "uri_file" and self.sources[0].uri.endswith("/"):
            raise FieldError(
                "uri_file names one file, and this uri a folder",
                accepted="Remove the slash at the end of the uri, or remove type.",
                reason=Reason.UnsupportedCombination,
                at=("sources", 0, "uri"),
            )
        return self


class DataSet(Kind):
    """What, from where, as whom, how to cache and mount it."""

    kind: Literal["DataSet"]
    spec: DataSetSpec
    status: DataSetStatus | None = None
