"""Each example loads, fits the editor schema, and comes back the same from the data sent to the daemon."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from stoker.api.load import read_documents
from stoker.api.schema import editor_schema

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"), key=lambda path: path.name)
SCHEMA = editor_schema()


def test_there_are_examples() -> None:
    assert len(FILES) >= 7


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=stoker.schema.json\n")
    (document,) = read_documents(str(path))
    written = yaml.safe_load(path.read_text())
    jsonschema.Draft7Validator(SCHEMA).validate(written)
    sent = json.loads(json.dumps(document.model.to_document()))
    assert sent == written
    assert type(document.model).from_body(sent) == document.model


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_fits_its_crd(path: Path) -> None:
    """What the API server checks before the rules; unknown fields it would prune, the editor schema refuses them."""
    written = yaml.safe_load(path.read_text())
    crds = [yaml.safe_load(file.read_text()) for file in (EXAMPLES.parent / "crds").glob("*.yaml")]
    (crd,) = [crd for crd in crds if crd["spec"]["names"]["kind"] == written["kind"]]
    jsonschema.Draft7Validator(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).validate(written)


def test_the_schema_file_is_what_the_models_say() -> None:
    assert json.loads((EXAMPLES / "stoker.schema.json").read_text()) == SCHEMA


@pytest.mark.parametrize(
    "spec",
    [
        {"sources": [{"uri": "s3:/bucket"}]},
        {"sources": []},
        {"sources": [{"uri": "s3://b/"}], "mode": "mount"},
        {"sources": [{"uri": "s3://b/"}], "mount": {"fileMode": 292}},
        {"sources": [{"uri": "s3://b/"}], "mount": {"blockSize": "2 MB"}},
        {"sources": [{"uri": "s3://b/", "includes": []}]},
    ],
)
def test_the_editor_schema_sees_mistakes(spec: object) -> None:
    document = {"apiVersion": "stoker.dev/v1alpha1", "kind": "DataSet", "metadata": {"name": "a"}, "spec": spec}
    assert not jsonschema.Draft7Validator(SCHEMA).is_valid(document)
