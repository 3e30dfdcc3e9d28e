"""`status` of a DataSet: what the operator observed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stoker.api.base import Count, Many, Model, Share, ShareOfHundred, ShortText, Text, Time, Word
from stoker.api.kube import Condition

Conditions = Annotated[Many[Condition], Field(max_length=32)]


class Changed(Model):
    """Against the generation before."""

    added: Count = 0
    """New files."""
    removed: Count = 0
    """Files that are gone."""
    modified: Count = 0
    """Files with other content."""


class Generation(Model):
    """The listing that new mounts show."""

    digest: Annotated[str, Field(max_length=128)] = ""
    """Sha256 of the manifest; empty before the first listing."""
    observed_time: Time = ""
    """When it was listed."""
    files: Count = 0
    """Number of files."""
    bytes: Count = 0
    """Their size together."""
    directories: Count = 0
    """Number of folders."""
    hidden: dict[Word, Count] = Field({}, max_length=32)
    """Keys that a file system cannot show, counted by reason."""
    changed: Changed = Changed()
    """What is different from the generation before."""


class Cached(Model):
    """What the nodes hold of the generation."""

    bytes: Count = 0
    """Bytes in cache, each counted once."""
    files: Count = 0
    """Files that are completely in cache."""
    percent: ShareOfHundred = 0
    """Share of the generation's bytes."""
    pinned_bytes: Count = 0
    """Bytes that are never evicted."""
    nodes: Count = 0
    """Nodes that hold some of it."""


class Reads(Model):
    """Where the bytes of reads came from."""

    hit_ratio: Share = 0
    """Share that came from this node's cache, 0 to 1."""
    bytes_from_cache: Count = 0
    """Bytes from the node's own cache."""
    bytes_from_peers: Count = 0
    """Bytes from other nodes."""
    bytes_from_source: Count = 0
    """Bytes from the store."""


class Volume(Model):
    """The volume that pods use."""

    persistent_volume: ShortText = ""
    """Name of the PersistentVolume."""
    persistent_volume_claim: ShortText = ""
    """Name of the PersistentVolumeClaim, in the DataSet's namespace."""


class PreloadStatus(Model):
    """The last preload."""

    job: ShortText = ""
    """Name of its CacheJob."""
    last_completion_time: Time = ""
    """When one last succeeded."""


class DataSetStatus(Model):
    """What the operator observed."""

    observed_generation: Count = 0
    """The generation of the spec that this status is of."""
    phase: Literal["Pending", "Indexing", "Loading", "Ready", "Degraded", "Failed", "Terminating"] = "Pending"
    """A summary of the conditions."""
    conditions: Conditions = ()
    """Accepted, RuntimeReady, Indexed, VolumeReady, Preloaded, Ready, SourceChanged, PinsFit, InUse."""
    runtime: Text = ""
    """The CacheRuntime that was chosen, once."""
    generation: Generation = Generation()
    """The listing that new mounts show."""
    cached: Cached = Cached()
    """What the nodes hold of it."""
    reads: Reads = Reads()
    """Where the bytes of reads came from."""
    volume: Volume = Volume()
    """The volume that pods use."""
    preload: PreloadStatus = PreloadStatus()
    """The last preload."""
    consumers: Count = 0
    """Pods that use the volume now."""
