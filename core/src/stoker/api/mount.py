"""`spec.mount` of a DataSet: how files look and how reads behave."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stoker.api.base import Form, Model
from stoker.api.duration import Duration, DurationField
from stoker.api.quantity import Size

Profile = Literal["", "sequential-once", "parallel-once", "small-files-once", "small-files-epochs", "random"]
OctalMode = Annotated[str, Field(max_length=4), Form(r"^0?[0-7]{3}$", 'Write octal permissions in quotes: "0444".')]
Identifier = Annotated[int, Field(ge=0, le=2**32 - 2)]


class ReadAhead(Model):
    """How far ahead of a sequential reader to fetch."""

    max: Size | None = None
    """The most to fetch ahead of one reader; 0 switches it off. By default 64Mi, or what the profile says."""
    threads: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Requests at once for one mount; 0 means four for each core. By default 0, or what the profile says."""


class Mount(Model):
    """How files look and how reads behave."""

    uid: Identifier = 0
    """Owner of all files and folders."""
    gid: Identifier = 0
    """Group of all files and folders."""
    file_mode: OctalMode = "0444"
    """Permissions of files, octal, in quotes."""
    dir_mode: OctalMode = "0555"
    """Permissions of folders, octal, in quotes."""
    read_ahead: ReadAhead = ReadAhead()
    """How far ahead of a sequential reader to fetch."""
    block_size: Size | None = None
    """The smallest sequential fetch. By default 2Mi, or what the profile says."""
    memory_cache: Size | None = None
    """Memory for bytes on their way to readers of this mount. By default 128Mi, or what the profile says."""
    retries: Annotated[int, Field(ge=0, le=100)] = 7
    """How often a failed request to the store is tried again before the reader gets an error."""
    request_timeout: DurationField = Duration.parse("30s")
    """How long one request to the store may take."""
    unmount_timeout: DurationField = Duration.parse("30s")
    """How long unmounting waits for what is in flight."""
    passthrough: Literal["Auto", "Always", "Never"] = "Auto"
    """Let the kernel read complete files straight from the cache disk: where it can, always (refused where it cannot),
    or never."""
    profile: Profile = ""
    """Presets of readAhead, blockSize and memoryCache for a way of reading; what is written beside it wins."""
    orphan_timeout: DurationField = Duration.parse("15m")
    """How long reads wait for a node daemon that does not come back before they fail."""
