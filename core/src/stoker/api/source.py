"""`spec.sources[]` of a DataSet: one uri, shown at one path."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from stoker.api.base import Form, Glob, Many, Model, SourceUri, Text, Word
from stoker.api.fielderror import FieldError

_NAME = Form(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "Use letters, digits, -, _ and ., at most 63.")
_ENDPOINT = Form(r"^(https?://[^/\s?#@]+(/[^\s?#@]*)?)?$", "Write http(s)://host[:port], without credentials.")


def _check_path(value: str) -> str:
    """Absolute, without empty, `.` or `..` components: it becomes folders of the mount."""
    parts = value[1:].split("/") if value != "/" else []
    wrong = not value.startswith("/") or "\0" in value or any(part in ("", ".", "..") for part in parts)
    if wrong or any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts):
        raise FieldError(f"{value!r} is not a path in the mount", accepted="Write / or a path such as /train.")
    return value


MountPath = Annotated[
    str, Field(max_length=1024, json_schema_extra={"pattern": "^/([^/]+(/[^/]+)*)?$"}), AfterValidator(_check_path)
]


class DataSetSource(Model):
    """One uri of a DataSet, shown at one path of the mount."""

    name: Annotated[Word, _NAME] | None = None
    """Unique in the DataSet. By default the last part of the uri."""
    uri: SourceUri
    """Where the data is: a folder or one object in a store, such as s3://bucket/prefix/. An https source is one file;
    a list of urls is written as several sources."""
    path: MountPath | None = None
    """Where it is shown. By default / when there is one source, /<name> otherwise; several sources may share a path."""
    include: Annotated[Many[Glob], Field(max_length=256)] = ()
    """Globs on the key relative to the uri; when there are some, only what matches one is shown. `**` spans folders."""
    exclude: Annotated[Many[Glob], Field(max_length=256)] = ()
    """Globs on the key relative to the uri; what matches one is not shown."""
    ignore_missing: bool = False
    """Accept a uri below which there is no object; otherwise that is an error."""
    endpoint: Annotated[Text, _ENDPOINT] = ""
    """Url of an S3, Azure or GCS compatible store, such as https://minio.example.com:9000; empty for the provider's."""
    region: Word = ""
    """Region of the bucket; empty to find out."""
    options: dict[Word, Text] = Field({}, max_length=32)
    """Further options of the store, from the list in docs/SOURCES.md."""
    replicas: Annotated[Many[SourceUri], Field(max_length=16)] = ()
    """Uris of identical copies in other accounts: spread by node, fallen back on when one fails."""
