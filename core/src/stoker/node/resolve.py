"""From the document a user wrote to what the processes of a node need: sources with credentials, mount settings.

Pure. What this node cannot serve yet is refused here, before anything is listed or mounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.mount import Mount
from stoker.api.reasons import Reason
from stoker.api.resolve import resolve_sources, resolve_tuning
from stoker.fetch.session import MountSpec
from stoker.sources.base import Credentials, SourceSpec

SCHEMES = ("s3", "https", "file")
_LARGE_FILE = 8 << 20  # from this mean size on an OPEN that can get passthrough is worth its two requests


@dataclass(frozen=True, slots=True)
class Owner:
    """Who the files of a mount belong to unless the document says so: the user of the node."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """A DataSet as this node serves it."""

    name: str
    sources: tuple[SourceSpec, ...]
    data_set: DataSet

    def mount_spec(self, owner: Owner, mean_size: int, *, passthrough: bool) -> MountSpec:
        """How this DataSet is mounted, now that its generation is known. `passthrough`: whether the kernel has it."""
        mount, policy = self.data_set.spec.mount, self.data_set.spec.cache.policy
        tuning = resolve_tuning(mount)
        wanted = mount.passthrough == "Always" or (mount.passthrough == "Auto" and mean_size >= _LARGE_FILE)
        return MountSpec(
            uid=mount.uid if "uid" in mount.model_fields_set else owner.uid,
            gid=mount.gid if "gid" in mount.model_fields_set else owner.gid,
            file_mode=int(mount.file_mode, 8),
            dir_mode=int(mount.dir_mode, 8),
            read_ahead_max=tuning.read_ahead_max,
            read_ahead_threads=tuning.read_ahead_threads,
            block_size=tuning.block_size,
            retries=mount.retries,
            request_timeout_s=mount.request_timeout.seconds,
            policy=policy,
            answered_open=wanted or policy == "WholeFile",
            passthrough=wanted and passthrough and policy != "Bypass",
        )


def wants_passthrough(mount: Mount) -> bool:
    """Whether the connection should offer passthrough to the kernel at all."""
    return mount.passthrough != "Never"


def resolve(data_set: DataSet, credentials: Mapping[str, Any], place: str) -> Resolved:
    """The sources of a DataSet with the credentials sent for each. Raises StokerError for what is not served here."""
    spec = data_set.spec
    if spec.mode != "ro_mount":
        step = "use mode ro_mount; the other modes come with a later release."
        raise StokerError(
            Reason.UnsupportedCombination,
            f"mode {spec.mode} is not served yet",
            place=f"{place}: spec.mode",
            next_step=step,
        )
    sources = []
    for index, resolved in enumerate(resolve_sources(spec)):
        source = resolved.source
        if resolved.uri.scheme not in SCHEMES:
            text = f"{resolved.uri.scheme}:// is not served yet"
            step = f"the schemes served are {', '.join(SCHEMES)}."
            raise StokerError(Reason.UnknownScheme, text, place=f"{place}: spec.sources[{index}].uri", next_step=step)
        sources.append(
            SourceSpec(
                name=resolved.name,
                uri=source.uri,
                path=resolved.path,
                include=tuple(source.include),
                exclude=tuple(source.exclude),
                ignore_missing=source.ignore_missing,
                endpoint=source.endpoint,
                region=source.region,
                options=tuple(sorted(source.options.items())),
                replicas=tuple(source.replicas),
                credentials=Credentials.from_json(credentials.get(resolved.name, {})),
                one_file=spec.type == "uri_file",
            )
        )
    return Resolved(data_set.full_name, tuple(sources), data_set)
