"""What the three kinds have in common as documents: apiVersion, metadata, and the way from and to plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ValidationError

from stoker.api.base import Model
from stoker.api.kube import Metadata
from stoker.api.names import LOCAL_NAMESPACE
from stoker.api.problems import first_error


class Kind(Model):
    """A document of the API."""

    api_version: Literal["stoker.dev/v1alpha1"]
    metadata: Metadata

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Parse plain data, as an API server or a client sent it. Raises StokerError with the field path as place."""
        try:
            return cls.model_validate(dict(body))
        except ValidationError as error:
            raise first_error(cls, error) from None

    def to_document(self) -> dict[str, Any]:
        """Plain data that `from_body` reads back: what the document said, without the defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @property
    def full_name(self) -> str:
        """`namespace/name`; documents outside a cluster are of the namespace `default`."""
        return f"{self.metadata.namespace or LOCAL_NAMESPACE}/{self.metadata.name}"
