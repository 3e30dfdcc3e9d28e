"""The reason words: one stable word for each refusal, the same in errors, events, conditions, metrics, logs, docs."""

from __future__ import annotations

import errno
from enum import StrEnum


class Reason(StrEnum):
    """Why something was refused or failed. The value is the word that users see."""

    # The command line
    InvalidUsage = "InvalidUsage"
    # The document a user wrote
    FileNotFound = "FileNotFound"
    InvalidYaml = "InvalidYaml"
    UnknownKind = "UnknownKind"
    UnknownField = "UnknownField"
    InvalidValue = "InvalidValue"
    MissingField = "MissingField"
    UnsupportedCombination = "UnsupportedCombination"
    UnknownScheme = "UnknownScheme"
    # The source
    AccessDenied = "AccessDenied"
    CredentialsMissing = "CredentialsMissing"
    CredentialsExpired = "CredentialsExpired"
    BucketNotFound = "BucketNotFound"
    SourceEmpty = "SourceEmpty"
    SourceNotFound = "SourceNotFound"
    SourceChanged = "SourceChanged"
    SourceUnavailable = "SourceUnavailable"
    Throttled = "Throttled"
    CorruptResponse = "CorruptResponse"
    RangeNotSupported = "RangeNotSupported"
    Archived = "Archived"
    # Keys that a directory tree cannot show (docs/SEMANTICS.md, Names)
    ShadowedByDirectory = "ShadowedByDirectory"
    ShadowedBySource = "ShadowedBySource"
    EmptyComponent = "EmptyComponent"
    DotComponent = "DotComponent"
    NulByte = "NulByte"
    NameTooLong = "NameTooLong"
    # The manifest
    ManifestCorrupt = "ManifestCorrupt"
    ManifestOutsideSource = "ManifestOutsideSource"
    # The mount
    MountpointMissing = "MountpointMissing"
    MountpointNotEmpty = "MountpointNotEmpty"
    MountpointNotDirectory = "MountpointNotDirectory"
    AlreadyMounted = "AlreadyMounted"
    MountpointInsideSource = "MountpointInsideSource"
    NotMounted = "NotMounted"
    MountBusy = "MountBusy"
    FuseUnavailable = "FuseUnavailable"
    PermissionDenied = "PermissionDenied"
    # The cache
    CacheFolderForeign = "CacheFolderForeign"
    CacheFolderReadOnly = "CacheFolderReadOnly"
    CacheFolderLocked = "CacheFolderLocked"
    CacheFull = "CacheFull"
    PinsDoNotFit = "PinsDoNotFit"
    CacheDiskFailing = "CacheDiskFailing"
    CacheRecovered = "CacheRecovered"
    CacheCorrupt = "CacheCorrupt"
    # The node daemon
    DataSetNotFound = "DataSetNotFound"
    NodeAlreadyRunning = "NodeAlreadyRunning"
    NodeNotRunning = "NodeNotRunning"
    NodeStartFailed = "NodeStartFailed"
    S3Disabled = "S3Disabled"
    # The admin API
    NotJson = "NotJson"
    RouteNotFound = "RouteNotFound"
    MethodNotAllowed = "MethodNotAllowed"
    BodyTooLarge = "BodyTooLarge"
    ContentTypeNotSupported = "ContentTypeNotSupported"
    CertificateRefused = "CertificateRefused"
    # Any of its processes
    Timeout = "Timeout"
    Cancelled = "Cancelled"
    Internal = "Internal"


# What a reader sees (docs/SEMANTICS.md, Errors); every reason that is not here is EIO.
_ERRNO: dict[Reason, int] = {
    Reason.AccessDenied: errno.EACCES,
    Reason.CredentialsExpired: errno.EACCES,
    Reason.CredentialsMissing: errno.EACCES,
    Reason.Archived: errno.EACCES,
    Reason.SourceChanged: errno.ESTALE,
    Reason.SourceNotFound: errno.ESTALE,
    Reason.NameTooLong: errno.ENAMETOOLONG,
}


def errno_of(reason: Reason) -> int:
    """The errno that read(2) or open(2) gives for `reason`."""
    return _ERRNO.get(reason, errno.EIO)
