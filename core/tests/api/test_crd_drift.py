"""The hand-written CRDs and the models say the same of every field: name, type, required, enum, default, bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoker.api.schema import kind_schema

ROOT = Path(__file__).parents[3]
FILES = {
    "DataSet": "crds/datasets.yaml",
    "CacheRuntime": "crds/cacheruntimes.yaml",
    "CacheJob": "crds/cachejobs.yaml",
}
# What structural schemas add to JSON schema, or cannot say.
ONLY_IN_CRD = {"x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
ONLY_IN_MODEL = {"propertyNames"}
Facts = dict[str, dict[str, Any]]


def crd(kind: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / FILES[kind]).read_text())


def crd_schema(kind: str) -> dict[str, Any]:
    (version,) = crd(kind)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def facts(schema: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Facts:
    """Path of each field -> all that is said about it."""
    while "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    said = {k: v for k, v in schema.items() if k not in {"properties", "items", "additionalProperties"} | ONLY_IN_MODEL}
    found: Facts = {path: {k: v for k, v in said.items() if k not in ONLY_IN_CRD}}
    if said.get("description"):
        found[path]["description"] = " ".join(said["description"].split())
    for name, inner in schema.get("properties", {}).items():
        found |= facts(inner, definitions, f"{path}.{name}")
    if "items" in schema:
        found |= facts(schema["items"], definitions, f"{path}[]")
    values = schema.get("additionalProperties")
    if values is True:
        found[path]["x-kubernetes-preserve-unknown-fields"] = True
    elif values:
        found |= facts(values, definitions, f"{path}{{}}")
    return found


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("part", ["spec", "status"])
def test_crd_and_model_say_the_same(kind: str, part: str) -> None:
    model = kind_schema(kind)
    ours = facts(model["properties"][part], model["$defs"])
    theirs = facts(crd_schema(kind)["properties"][part], {})
    assert sorted(ours) == sorted(theirs)
    assert len(ours) > 10
    for path, said in ours.items():
        assert said == theirs[path], f"{part}{path}"


@pytest.mark.parametrize("kind", FILES)
def test_the_same_fields_are_required_in_the_document(kind: str) -> None:
    # apiVersion, kind and metadata are required by the API server itself
    assert set(kind_schema(kind)["required"]) - {"apiVersion", "kind", "metadata"} == set(crd_schema(kind)["required"])


def every(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema node of spec and status."""
    for part in ("spec", "status"):
        todo = [(part, crd_schema(kind)["properties"][part])]
        while todo:
            path, node = todo.pop()
            yield path, node
            todo += [(f"{path}.{name}", inner) for name, inner in node.get("properties", {}).items()]
            if "items" in node:
                todo.append((f"{path}[]", node["items"]))
            if isinstance(node.get("additionalProperties"), dict):
                todo.append((f"{path}{{}}", node["additionalProperties"]))


@pytest.mark.parametrize("kind", FILES)
def test_every_string_list_and_map_has_a_bound(kind: str) -> None:
    """Without bounds the API server takes the cost of each CEL rule for unlimited."""
    for path, node in every(kind):
        if node.get("type") == "string" or node.get("x-kubernetes-int-or-string"):
            assert "maxLength" in node or "enum" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


@pytest.mark.parametrize("kind", FILES)
def test_every_field_is_described(kind: str) -> None:
    for path, node in every(kind):
        if not path.endswith(("[]", "{}")):
            assert node.get("description"), path


@pytest.mark.parametrize("kind", FILES)
def test_each_rule_says_what_to_do(kind: str) -> None:
    rules = [rule for _, node in every(kind) for rule in node.get("x-kubernetes-validations", [])]
    for rule in rules:
        assert set(rule) <= {"rule", "message", "fieldPath", "reason"}
        assert "self" in rule["rule"]
        assert "\n" not in rule["message"]


COLUMNS = {
    "DataSet": (["Phase", "Files", "Size", "Cached %", "Hit %", "Age"], ["Generation", "Runtime", "Mode", "Consumers"]),
    "CacheRuntime": (["Ready", "Nodes", "Used", "Capacity", "Hit %", "Age"], []),
}


@pytest.mark.parametrize("kind", FILES)
def test_names_columns_and_status(kind: str) -> None:
    spec = crd(kind)["spec"]
    (version,) = spec["versions"]
    short = {"DataSet": "sds", "CacheRuntime": "scr", "CacheJob": "scj"}[kind]
    assert (spec["group"], version["name"]) == ("stoker.dev", "v1alpha1")
    assert spec["names"]["shortNames"] == [short]
    assert spec["names"]["categories"] == ["stoker"]
    assert spec["scope"] == ("Cluster" if kind == "CacheRuntime" else "Namespaced")
    assert version["subresources"] == {"status": {}}
    columns = version["additionalPrinterColumns"]
    fields = {
        f"{part}{path}" for part in ("spec", "status") for path in facts(crd_schema(kind)["properties"][part], {})
    }
    for column in columns:
        assert column["jsonPath"].lstrip(".") in fields | {"metadata.creationTimestamp"}
    if kind in COLUMNS:
        assert [c["name"] for c in columns if not c.get("priority")] == COLUMNS[kind][0]
        assert [c["name"] for c in columns if c.get("priority")] == COLUMNS[kind][1]
