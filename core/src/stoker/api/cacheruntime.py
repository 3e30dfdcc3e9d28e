"""The kind CacheRuntime: the cache of a set of nodes; the administrator's."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from stoker.api.base import Count, Form, Many, Model, Priority, Share, ShortText, SourceUri, Text, Word
from stoker.api.datasetstatus import Conditions, Reads
from stoker.api.document import Kind
from stoker.api.duration import Duration, DurationField
from stoker.api.fielderror import FieldError
from stoker.api.kube import LabelSelector, Toleration
from stoker.api.quantity import CountOrPercent, Percent, Quantity, SignedSize, Size, SizeOrPercent

_RESOURCE = Form(r"^[0-9]+(\.[0-9]+)?(m|[KMGTPE]i|[kMGTPE])?$", 'Write a quantity as a string: "500m", "2" or 1Gi.')
_PROXY = Form(r"^(https?://.+)?$", "Write http://host:port.")


def _check_disk(value: str) -> str:
    if not value.startswith("/") or any(part in ("", ".", "..") for part in value[1:].split("/")) or "\0" in value:
        raise FieldError(f"{value!r} is not a folder", accepted="Write an absolute path such as /mnt/nvme/stoker.")
    return value


DiskPath = Annotated[
    str, Field(max_length=1024, json_schema_extra={"pattern": "^(/[^/]+)+$"}), AfterValidator(_check_disk)
]
ResourceAmount = Annotated[str, Field(max_length=32), _RESOURCE]
Resources = dict[Word, ResourceAmount]


class Nodes(Model):
    """The nodes that the cache runs on."""

    node_selector: dict[str, Word] = Field({}, max_length=64)
    """Labels that a node must have; empty means all nodes."""
    tolerations: Annotated[Many[Toleration], Field(max_length=64)] = ()
    """Taints that are tolerated."""
    affinity: dict[str, Any] = Field({})
    """Affinity of the pods, as in a pod's spec."""


class Tier(Model):
    """One disk of each node, filled on its own."""

    path: DiskPath
    """Folder on the node; Stoker owns everything in it."""
    quota: SignedSize
    """Bytes to use; a negative quantity, as a string, leaves that much of the file system free."""
    inodes: Count = 0
    """Files to use; 0 means as many as the file system has."""


class Eviction(Model):
    """When room is made, in shares of a tier's quota."""

    high_watermark: Share = 1.0
    """Above this share, eviction starts."""
    low_watermark: Share = 0.7
    """At this share, it ends."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low_watermark > self.high_watermark:
            raise FieldError("it is above highWatermark", accepted="Give a lower one.", at=("lowWatermark",))
        return self


class Peers(Model):
    """Reading from other nodes before the store."""

    enabled: bool = True
    """Whether nodes read from each other."""


class S3(Model):
    """The S3 endpoint of each node."""

    enabled: bool = True
    """Whether it is served."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9600
    """Its port."""


class Workers(Model):
    """Processes of the node daemon."""

    fuse: Annotated[int, Field(ge=0, le=256)] = 0
    """Processes that answer reads; 0 means by cores."""
    fetch: Annotated[int, Field(ge=0, le=256)] = 0
    """Processes that fetch; 0 means by cores."""


class ResourceRequirements(Model):
    """What the node daemon asks of its node."""

    requests: Resources = Field({"cpu": "1", "memory": "1Gi"}, max_length=16)
    """What is reserved."""
    limits: Resources = Field({}, max_length=16)
    """What is the most."""


class Limit(Model):
    """What the DataSets of one namespace may use together."""

    namespace_selector: LabelSelector = LabelSelector()
    """Labels of the namespaces; {} means all."""
    bytes: Size = Quantity.parse(0)
    """Bytes on one node; 0 means no limit."""
    inodes: Count = 0
    """Files on one node; 0 means no limit."""
    pinned_bytes: SizeOrPercent = Percent(50)
    """Pinned bytes on one node, or a share of its capacity."""
    max_priority: Priority = 500
    """The highest priority."""
    source_bandwidth: Size = Quantity.parse(0)
    """Bytes a second from stores over all nodes; 0 means no limit."""


class Grant(Model):
    """Uris that DataSets of some namespaces may read with the node's own rights."""

    namespace_selector: LabelSelector = LabelSelector()
    """Labels of the namespaces; {} means all."""
    uri_prefixes: Annotated[Many[SourceUri], Field(max_length=256)] = ()
    """What a source's uri must start with; none means no uri."""


class ManagedIdentity(Model):
    """Who may use identity mode Managed, and for what."""

    grants: Annotated[Many[Grant], Field(max_length=64)] = ()
    """Without one, Managed is refused."""


class SourcePolicy(Model):
    """What sources may contact, and how."""

    allowed_endpoints: Annotated[Many[Text], Field(max_length=256)] = ()
    """Endpoints that a DataSet may name; empty means all."""
    fsspec_protocols: Annotated[Many[Word], Field(max_length=64)] = ("webhdfs", "sftp")
    """Protocols that fsspec+ uris may use."""
    proxy: Annotated[Text, _PROXY] = ""
    """Url of the proxy to stores; empty for none."""
    ca_bundle: Annotated[str, Field(max_length=262144)] = ""
    """Certificate authorities of stores, as PEM text; empty for the system's."""


class Update(Model):
    """How nodes are updated."""

    max_unavailable: CountOrPercent = Percent(10)
    """Nodes at once, a number or a share."""


class Probe(Model):
    """The canary that is read through a real mount on every node."""

    enabled: bool = True
    """Whether it runs."""
    interval: DurationField = Duration.parse("15s")
    """How often."""


class CacheRuntimeSpec(Model):
    """The cache of a set of nodes."""

    nodes: Nodes = Nodes()
    """The nodes that it runs on."""
    tiers: Annotated[Many[Tier], Field(min_length=1, max_length=16)]
    """One or more disks of each node, each filled on its own."""
    reserve_free: Size = Quantity.parse("150Mi")
    """What stays free on each disk whoever fills it."""
    eviction: Eviction = Eviction()
    """When room is made."""
    source_bandwidth_limit: Size = Quantity.parse(0)
    """Bytes a second from stores over all nodes; 0 means no limit."""
    peers: Peers = Peers()
    """Reading from other nodes before the store."""
    s3: S3 = S3()
    """The S3 endpoint of each node."""
    workers: Workers = Workers()
    """Processes of the node daemon."""
    resources: ResourceRequirements = ResourceRequirements()
    """What the node daemon asks of its node."""
    namespace_selector: LabelSelector = LabelSelector()
    """Labels of the namespaces that may use it; {} means all."""
    limits: Annotated[Many[Limit], Field(max_length=64)] = ()
    """Limits for each namespace; the first match counts."""
    managed_identity: ManagedIdentity = ManagedIdentity()
    """Who may use identity mode Managed, and for what."""
    sources: SourcePolicy = SourcePolicy()
    """What sources may contact, and how."""
    datastores: dict[Word, SourceUri] = Field({}, max_length=256)
    """Names of azureml datastores and the uris they stand for."""
    update: Update = Update()
    """How nodes are updated."""
    probe: Probe = Probe()
    """The canary that is read through a real mount on every node."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged."""

    @model_validator(mode="after")
    def _tiers_differ(self) -> Self:
        paths = [tier.path for tier in self.tiers]
        for index, path in enumerate(paths):
            if path in paths[:index]:
                at = ("tiers", index, "path")
                raise FieldError(f"{path!r} is the folder of two tiers", accepted="Give each its own disk.", at=at)
        return self


class NodeCounts(Model):
    """How many nodes."""

    desired: Count = 0
    """Nodes that should run the cache."""
    ready: Count = 0
    """Nodes that do."""
    updated: Count = 0
    """Nodes that run the newest version."""


class Capacity(Model):
    """Room on all nodes together."""

    bytes: Count = 0
    """Bytes that may be used."""
    used_bytes: Count = 0
    """Bytes that are used."""
    pinned_bytes: Count = 0
    """Bytes that are never evicted."""
    inodes: Count = 0
    """Files that may be used."""
    used_inodes: Count = 0
    """Files that are used."""


class UnhealthyNode(Model):
    """A node that does not serve."""

    name: ShortText
    """Its name."""
    reason: Text
    """Why, one word."""


class CacheRuntimeStatus(Model):
    """What the operator observed."""

    observed_generation: Count = 0
    """The generation of the spec that this status is of."""
    conditions: Conditions = ()
    """Accepted, Available, Progressing, Degraded."""
    nodes: NodeCounts = NodeCounts()
    """How many nodes."""
    capacity: Capacity = Capacity()
    """Room on all nodes together."""
    reads: Reads = Reads()
    """Where the bytes of reads came from."""
    unhealthy_nodes: Annotated[Many[UnhealthyNode], Field(max_length=100)] = ()
    """Nodes that do not serve, the first 100."""


class CacheRuntime(Kind):
    """The cache of a set of nodes."""

    kind: Literal["CacheRuntime"]
    spec: CacheRuntimeSpec
    status: CacheRuntimeStatus | None = None
