"""Source uris, parsed once: which store, which bucket, and the prefix of keys as bytes.

Not for opening: `stoker.sources` does. Everything after the bucket is taken as written, byte for byte (`?`, `#`
and `%` are part of a key), except in `file://`, where percent escapes are undone.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from stoker.api.fielderror import FieldError
from stoker.api.reasons import Reason

MAX_LENGTH = 2048
_FORMS = {
    "s3": "s3://bucket/prefix/",
    "gs": "gs://bucket/prefix/",
    "az": "az://container@account/prefix/",
    "abfss": "abfss://container@account.dfs.core.windows.net/prefix/",
    "wasbs": "wasbs://container@account.blob.core.windows.net/prefix/",
    "azureml": "azureml://datastores/name/paths/prefix/",
    "hf": "hf://datasets/owner/name/prefix/",
    "https": "https://host/path/file.tar",
    "file": "file:///absolute/path/",
    "dataset": "dataset://namespace/name/sub/path/",
}
SCHEMES = tuple(_FORMS)
URI_PATTERN = rf"^({'|'.join(SCHEMES)}|fsspec\+[a-z][a-z0-9]*)://.+$"
"""What schemas can see of it."""
_OFTEN_MEANT = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs", "http": "https"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_HOST = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_AZURE = re.compile(r"(?P<container>[a-z0-9$][a-z0-9-]{0,62})(@(?P<account>[a-z0-9]{3,24})(?P<domain>\.[a-z0-9.-]+)?)?")
_AZUREML = re.compile(
    r"(?P<workspace>subscriptions/[^/]+/resource[gG]roups/[^/]+/(providers/[^/]+/)?workspaces/[^/]+/)?"
    r"datastores/(?P<name>[A-Za-z0-9_]+)/paths/(?P<path>.*)",
    re.DOTALL,
)
_HF = re.compile(r"(?P<repo>((datasets|spaces)/)?[\w.-]+/[\w.-]+(@[^/]+)?)(/(?P<path>.*))?", re.DOTALL)
_DATASET = re.compile(
    r"(?P<namespace>[a-z0-9]([a-z0-9-]*[a-z0-9])?)/(?P<name>[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[\w.-]+)?)(/(?P<path>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Uri:
    """A parsed uri. `store` is the bucket, container, datastore, repository, host or `namespace/name`; "" for files."""

    text: str
    scheme: str
    store: str
    prefix: bytes
    account: str = ""
    domain: str = ""

    @property
    def is_folder(self) -> bool:
        """True when it can only name a folder; False when only a look at the store can tell."""
        return not self.prefix or self.prefix.endswith(b"/")

    @property
    def last_component(self) -> bytes:
        return self.prefix.rstrip(b"/").rpartition(b"/")[2]


def parse_uri(value: str) -> Uri:
    """Raises FieldError: UnknownScheme for a scheme that no store has, InvalidValue for any other fault."""
    _refuse_unprintable(value)
    match = _SCHEME.fullmatch(value)
    if match is None:
        raise FieldError(f"{value!r} is not a uri", accepted=_no_scheme(value), reason=Reason.UnknownScheme)
    scheme, rest = match[1], match[2]
    if scheme.startswith("fsspec+"):
        return _fsspec(value, scheme, rest)
    parser = _PARSERS.get(scheme)
    if parser is None:
        raise FieldError(f"{value!r} has the unknown scheme {scheme!r}", accepted=_known(scheme), reason=_UNKNOWN)
    uri = parser(value, scheme, rest)
    if uri is None:
        raise FieldError(f"{value!r} is not a {scheme} uri", accepted=f"Write it as {_FORMS[scheme]}.")
    return uri


_UNKNOWN = Reason.UnknownScheme


def _refuse_unprintable(value: str) -> None:
    if not value:
        raise FieldError("the uri is empty", accepted=f"Write it as {_FORMS['s3']}.")
    if len(value.encode("utf-8", "surrogateescape")) > MAX_LENGTH:
        raise FieldError(f"the uri is longer than {MAX_LENGTH} bytes", accepted="Give a shorter one and use include.")
    if "\0" in value:
        raise FieldError(f"{value!r} holds a NUL byte", accepted="Remove it.")


def _no_scheme(value: str) -> str:
    if value.startswith("/"):
        return f"For a local folder write file://{value}."
    return f"Write it as {_FORMS['s3']}, with one of these schemes: {', '.join(SCHEMES)}."


def _known(scheme: str) -> str:
    lower = scheme.lower()
    close = _OFTEN_MEANT.get(lower) or next(iter(difflib.get_close_matches(lower, SCHEMES, n=1)), "")
    hint = f"Did you mean {_FORMS[close]}? " if close else ""
    return f"{hint}The schemes are {', '.join(SCHEMES)} and fsspec+<protocol>."


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _bucket(value: str, scheme: str, rest: str) -> Uri | None:
    bucket, _, key = rest.partition("/")
    return Uri(value, scheme, bucket, _raw(key)) if _BUCKET.fullmatch(bucket) else None


def _azure(value: str, scheme: str, rest: str) -> Uri | None:
    authority, _, key = rest.partition("/")
    match = _AZURE.fullmatch(authority)
    if match is None or (scheme != "az" and not match["domain"]):
        return None
    account, domain = match["account"] or "", (match["domain"] or "").lstrip(".")
    return Uri(value, scheme, match["container"], _raw(key), account, domain)


def _azureml(value: str, scheme: str, rest: str) -> Uri | None:
    match = _AZUREML.fullmatch(rest)
    return match and Uri(value, scheme, match["name"], _raw(match["path"]), account=match["workspace"] or "")


def _hf(value: str, scheme: str, rest: str) -> Uri | None:
    match = _HF.fullmatch(rest)
    return match and Uri(value, scheme, match["repo"], _raw(match["path"] or ""))


def _https(value: str, scheme: str, rest: str) -> Uri | None:
    host, _, path = rest.partition("/")
    if "@" in host:
        raise FieldError(
            "the uri carries a user name or password", accepted="Remove it; credentials never stand in a document."
        )
    if not _HOST.fullmatch(host):
        return None
    if not path.partition("?")[0].rpartition("/")[2]:
        raise FieldError(
            f"{value!r} names a folder, and https has no listing",
            accepted="Give the url of one file, and one source for each file.",
        )
    return Uri(value, scheme, host.lower(), _raw(path))


def _file(value: str, scheme: str, rest: str) -> Uri | None:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        return None
    return Uri(value, scheme, "", unquote_to_bytes(_raw(f"/{path}")))


def _dataset(value: str, scheme: str, rest: str) -> Uri | None:
    match = _DATASET.fullmatch(rest)
    return match and Uri(value, scheme, f"{match['namespace']}/{match['name']}", _raw(match["path"] or ""))


def _fsspec(value: str, scheme: str, rest: str) -> Uri:
    protocol = scheme.removeprefix("fsspec+")
    if not re.fullmatch(r"[a-z][a-z0-9]*", protocol) or "::" in rest or not rest:
        raise FieldError(
            f"{value!r} is not an fsspec uri", accepted="Write it as fsspec+protocol://path; chains (::) are refused."
        )
    host, _, path = rest.partition("/")
    return Uri(value, scheme, host, _raw(path))


_PARSERS = {
    "s3": _bucket,
    "gs": _bucket,
    "az": _azure,
    "abfss": _azure,
    "wasbs": _azure,
    "azureml": _azureml,
    "hf": _hf,
    "https": _https,
    "file": _file,
    "dataset": _dataset,
}
