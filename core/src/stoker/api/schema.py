"""The JSON schema of the three kinds: for editors (`examples/stoker.schema.json`), and what the CRDs are held against.

`python -m stoker.api.schema` writes the file; with `--check` it only says whether the file is what it would write.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import LiteralSchema, ModelSchema, NullableSchema, WithDefaultSchema

from stoker.api.base import API_VERSION
from stoker.api.descriptions import field_descriptions
from stoker.api.duration import Duration
from stoker.api.generated import write_or_check
from stoker.api.load import KINDS
from stoker.api.quantity import Percent, Quantity

PATH = "examples/stoker.schema.json"


class DocumentSchema(GenerateJsonSchema):
    """pydantic's schema as Kubernetes would write it: optional instead of nullable, defaults as documents have them."""

    def nullable_schema(self, schema: NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def literal_schema(self, schema: LiteralSchema) -> JsonSchemaValue:
        """Always an enum: structural schemas have no `const`."""
        return {"type": "string", "enum": list(schema["expected"])}

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Quantity | Percent):
            return dft.to_document()
        if isinstance(dft, Duration):
            return str(dft)
        if isinstance(dft, BaseModel):
            return dft.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        result.pop("title", None)
        model: type[BaseModel] = schema["cls"]
        described = field_descriptions(model)
        for name, field in model.model_fields.items():
            if name in described:
                result["properties"][field.alias or name]["description"] = described[name]
        return result


def kind_schema(kind: str) -> dict[str, Any]:
    """The schema of one kind, with `$defs`."""
    return KINDS[kind].model_json_schema(by_alias=True, schema_generator=DocumentSchema)


def editor_schema() -> dict[str, Any]:
    """One schema for a file of any of the kinds."""
    definitions: dict[str, Any] = {}
    for kind in KINDS:
        schema = kind_schema(kind)
        definitions.update(schema.pop("$defs"))
        definitions[kind] = schema
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Stoker {API_VERSION}",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"kind": {"enum": list(KINDS)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}"}} for kind in KINDS
        ],
        "$defs": definitions,
    }


def main(arguments: list[str]) -> int:
    return write_or_check(PATH, json.dumps(editor_schema(), indent=1) + "\n", arguments, "stoker.api.schema")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
