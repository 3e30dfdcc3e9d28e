"""`spec.identity` of a DataSet: with whose rights the sources are read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stoker.api.base import Form, Model, ObjectName, ShortText, Text, Word
from stoker.api.duration import Duration, DurationField
from stoker.api.fielderror import FieldError
from stoker.api.kube import Reference
from stoker.api.reasons import Reason

_ROLE = Form(r"^(arn:aws[a-z-]*:iam::[0-9]{12}:role/.+)?$", "Write arn:aws:iam::<account>:role/<name>.")


class AwsIdentity(Model):
    """How a pod's token is exchanged at AWS."""

    role_arn: Annotated[str, Field(alias="roleARN", max_length=2048), _ROLE] = ""
    """Role to assume; empty for the annotation of the service account."""
    audience: ShortText = "sts.amazonaws.com"
    """Audience of the token."""
    sts_region: Word = ""
    """Region of the STS endpoint; empty for the source's own."""


class AzureIdentity(Model):
    """How a pod's token is exchanged at Entra ID."""

    client_id: Annotated[Word, Field(alias="clientID")] = ""
    """Application or managed identity; empty for the annotation of the service account."""
    tenant_id: Annotated[Word, Field(alias="tenantID")] = ""
    """Tenant; empty for the annotation of the service account."""
    audience: ShortText = "api://AzureADTokenExchange"
    """Audience of the token."""


class GcpIdentity(Model):
    """How a pod's token is exchanged at Google Cloud."""

    audience: Text = ""
    """Audience of the token; one that the CSIDriver does not request is refused."""
    provider: Text = ""
    """Workload identity provider, as a full resource name."""
    service_account: ShortText = ""
    """Service account to impersonate; empty for the annotation of the service account, or none."""


class Identity(Model):
    """With whose rights the sources are read."""

    mode: Literal["User", "Managed", "Secret", "None"] | None = None
    """User: the pod's own service account. Managed: the node's workload identity, where the CacheRuntime grants it.
    Secret: the keys of secretRef. None: unsigned. By default User in a cluster and the local profile outside it."""
    service_account_name: ObjectName = "default"
    """Service account of index, preload and verify jobs."""
    aws: AwsIdentity = AwsIdentity()
    """How a pod's token is exchanged at AWS."""
    azure: AzureIdentity = AzureIdentity()
    """How a pod's token is exchanged at Entra ID."""
    gcp: GcpIdentity = GcpIdentity()
    """How a pod's token is exchanged at Google Cloud."""
    secret_ref: Reference | None = None
    """Secret of type stoker.dev/credentials in the DataSet's namespace, for mode Secret."""
    check: Literal["Prefix", "Directory", "Object"] | None = None
    """What a reader must have proven the right for before cached bytes are served: each source, each folder, or each
    object. By default Prefix; Directory for hierarchical namespaces and buckets with fine-grained rights."""
    check_ttl: Annotated[DurationField, Field(alias="checkTTL")] = Duration.parse("60s")
    """How long a proof or a refusal counts."""

    @model_validator(mode="after")
    def _secret_ref_goes_with_mode(self) -> Identity:
        if self.mode == "Secret" and self.secret_ref is None:
            accepted = "Add secretRef: {name: ...}."
            raise FieldError("mode Secret needs it", accepted=accepted, reason=Reason.MissingField, at=("secretRef",))
        if self.mode not in ("Secret", None) and self.secret_ref is not None:
            raise FieldError(
                f"it has no use in mode {self.mode}",
                accepted="Set mode: Secret, or remove secretRef.",
                reason=Reason.UnsupportedCombination,
                at=("secretRef",),
            )
        return self
