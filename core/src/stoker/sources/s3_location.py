"""Where a bucket is: endpoint, addressing style and region; the url of a key; the options that say so. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from stoker.api.reasons import Reason
from stoker.api.uri import Uri
from stoker.sources.base import SourceError, SourceSpec

OPTIONS = ("pathStyle", "unsigned")
_DEFAULT_REGION = "us-east-1"  # answers for every bucket of the provider, if only by naming its region
_REGION = re.compile(r"[a-z0-9-]{1,64}")


@dataclass(slots=True)
class Location:
    """One bucket. `region` changes when the store names another one."""

    bucket: str
    given_endpoint: str
    region: str
    path_style: bool
    unsigned: bool

    @property
    def endpoint(self) -> str:
        return self.given_endpoint or f"https://s3.{self.region}.amazonaws.com"

    @property
    def origin(self) -> str:
        """The host without the region: the same bucket keeps its cached bytes when its region becomes known."""
        host = urlsplit(self.given_endpoint).netloc if self.given_endpoint else "s3.amazonaws.com"
        return f"s3://{host}/{self.bucket}"

    @property
    def base(self) -> str:
        """The url of the bucket, without a slash at its end."""
        if self.path_style:
            return f"{self.endpoint}/{self.bucket}"
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{self.bucket}.{host}"

    def url(self, key: bytes = b"", query: Mapping[str, str | bytes] | None = None) -> str:
        """Escaped as signatures want it: everything but letters, digits and `-._~/`."""
        path = quote(key, safe="/~")
        # The slash of a bucket's own url, because a path is never empty in a request or in its signature.
        tail = "&".join(f"{name}={quote(value, safe='~')}" for name, value in sorted((query or {}).items()))
        return f"{self.base}/{path}" + (f"?{tail}" if tail else "")

    def move_to(self, region: str) -> bool:
        """Remember the region that the store named; False when that is no news."""
        if region == self.region or not _REGION.fullmatch(region):
            return False
        self.region = region
        return True


def location_of(spec: SourceSpec, uri: Uri) -> Location:
    """Raises SourceError(InvalidValue) for an option that is none, or an endpoint that is no url."""
    options = dict(spec.options)
    for name in options:
        if name not in OPTIONS:
            raise _invalid(spec, f"unknown option {name!r}", f"the options of s3:// are {', '.join(OPTIONS)}.")
    endpoint = spec.endpoint.rstrip("/")
    if endpoint:
        _check_endpoint(spec, endpoint)
    # A certificate for *.s3.amazonaws.com does not cover a bucket with dots in its name.
    path_style = _flag(spec, options, "pathStyle", bool(endpoint) or "." in uri.store)
    return Location(
        uri.store, endpoint, spec.region or _DEFAULT_REGION, path_style, _flag(spec, options, "unsigned", False)
    )


def _check_endpoint(spec: SourceSpec, endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc or parts.query:
        raise _invalid(spec, f"the endpoint {spec.endpoint!r} is not a url", "write it as https://host:port.")


def _flag(spec: SourceSpec, options: dict[str, str], name: str, default: bool) -> bool:
    value = options.get(name)
    if value not in (None, "true", "false"):
        raise _invalid(spec, f"option {name} is {value!r}", "it takes true or false.")
    return default if value is None else value == "true"


def _invalid(spec: SourceSpec, message: str, step: str) -> SourceError:
    return SourceError(Reason.InvalidValue, message, place=spec.uri, next_step=step)
