"""The stores that data comes from: `open_source` makes a `Source` (base.py) of a spec. Not for caching or retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.api.reasons import Reason

if TYPE_CHECKING:
    from stoker.sources.base import Source, SourceSpec

__all__ = ["open_source"]


def open_source(spec: SourceSpec) -> Source:
    """The store of `spec.uri`, not contacted yet; its replicas are the caller's, each a source of its own.

    Raises SourceError for a scheme or an option that it does not have.
    """
    from stoker.api.uri import parse_uri
    from stoker.sources.base import SourceError

    uri = parse_uri(spec.uri)
    # Each store is imported when it is first asked for: the command line reads `base` alone, and quickly.
    if uri.scheme == "s3":
        from stoker.sources.s3 import S3Source

        return S3Source.open(spec, uri)
    if uri.scheme == "https":
        from stoker.sources.https import HttpsSource

        return HttpsSource.open(spec, uri)
    if uri.scheme == "file":
        from stoker.sources.file import FileSource

        return FileSource.open(spec, uri)
    raise SourceError(
        Reason.UnknownScheme,
        f"{uri.scheme}:// is not served yet",
        place=spec.uri,
        next_step="use s3://, https:// or file://.",
    )
