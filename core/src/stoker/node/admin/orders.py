"""Bodies that bring a DataSet, and what several routes answer with."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stoker.api.base import Many, Model, Text
from stoker.api.dataset import DataSet
from stoker.node.admin.route import Answer
from stoker.node.resolve import Resolved, resolve

FullName = Annotated[str, Field(min_length=1, max_length=317)]
"""`namespace/name`."""


class SourceCredentials(Model):
    """How to get at one source. Kept in memory only."""

    kind: Annotated[str, Field(max_length=64)] = "none"
    """`none`, `static` or `profile`."""
    access_key: Annotated[str, Field(alias="access_key", max_length=4096)] = ""
    """Of `static`."""
    secret_key: Annotated[str, Field(alias="secret_key", max_length=4096)] = ""
    """Of `static`."""
    session_token: Annotated[str, Field(alias="session_token", max_length=65536)] = ""
    """Of `static`."""
    profile: Text = ""
    """Of `profile`: its name in the two files."""
    config_file: Annotated[str, Field(alias="config_file", max_length=4096)] = ""
    """Of `profile`."""
    credentials_file: Annotated[str, Field(alias="credentials_file", max_length=4096)] = ""
    """Of `profile`."""


Credentials = dict[str, SourceCredentials]
"""By the name of the source."""


def plain(credentials: Credentials) -> dict[str, dict[str, str]]:
    """As `resolve` takes them."""
    return {name: given.model_dump(by_alias=True) for name, given in credentials.items()}


class DataSetOrder(Model):
    """A DataSet, and how to get at its sources."""

    document: DataSet
    """The DataSet."""
    place: Annotated[str, Field(max_length=8192)] = ""
    """Where the document stands, as errors show it: `dataset.yaml:1`."""
    credentials: Credentials = Field(default_factory=dict)
    """By the name of the source; a source that is not here is read unsigned."""

    def resolved(self) -> Resolved:
        """Raises StokerError for what this node does not serve."""
        return resolve(self.document, plain(self.credentials), self.place)


class Tier(Model):
    """One disk of the cache."""

    path: str
    limit_bytes: int
    used_bytes: int
    limit_inodes: int
    used_inodes: int
    pinned_bytes: int
    state: str
    """`ok`, `recovering`, `full` or `failing`."""
    reason: str
    """The word for the last two."""


class PinStatus(Answer):
    """What is pinned."""

    pinned_bytes: int
    pinned_files: int
    pinned_cached_bytes: int
    pins_fit: bool
    pins_message: str
    """Why they do not, or are not kept."""


class ObjectChanges(Model):
    """Objects, against the generation before."""

    added: int
    removed: int
    modified: int


class GenerationStatus(Model):
    """One listing of a DataSet."""

    digest: str
    observed_time: str
    files: int
    bytes: int
    directories: int
    hidden: dict[str, int]
    changed: ObjectChanges


class KnownCondition(Model):
    """What is known to be so, as Kubernetes has it."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str


class RefreshStatus(Model):
    """When the sources are listed."""

    interval_seconds: float
    last_listed_time: str


class ChangedFiles(Model):
    """What readers of a mount found changed."""

    files: int
    last_path: str


class KnownDataSet(PinStatus):
    """A DataSet that this node knows."""

    name: str
    """`namespace/name`."""
    held_bytes: int
    """On disk; an object of several DataSets counts for each."""
    held_files: int
    """The same in files."""
    quota_bytes: int
    """0: none; negative: left to others."""
    quota_inodes: int
    priority: int
    ttl_seconds: float
    mounts: int
    generation: GenerationStatus | None
    """Null before the first listing."""
    conditions: Many[KnownCondition]
    refresh: RefreshStatus


class MountStatus(PinStatus):
    """A mount. Reads that the kernel answers from its own page cache are in none of the numbers."""

    id: str
    data_set: str
    mountpoint: str
    state: str
    generation: str
    files: int
    directories: int
    bytes: int
    cached_bytes: int
    cached_files: int
    cached_percent: float
    hit_ratio: float | None
    """Null before the first read."""
    bytes_from_cache: int
    bytes_from_source: int
    read_errors: int
    hidden: dict[str, int]
    """Keys that a folder cannot show, by reason."""
    mode: str
    passthrough: bool
    source_changed: ChangedFiles


class JobProgress(Model):
    """How far a job is; never goes backwards."""

    files_total: int
    files_done: int
    files_failed: int
    bytes_total: int
    bytes_done: int
    bytes_per_second: int
    percent: float
    eta_seconds: int


class JobFailure(Model):
    """A file that failed."""

    path: str
    reason: str
    message: str


class JobStatus(Model):
    """A job."""

    id: str
    operation: str
    data_set: str
    version: int
    """Grows with every change: see the long polls."""
    phase: str
    progress: JobProgress
    failures: Many[JobFailure]
    """The first 100."""
    skipped: dict[str, int]
    """Keys that a directory tree cannot show, by reason."""
