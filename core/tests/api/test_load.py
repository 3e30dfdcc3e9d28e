"""Documents from files: each mistake gives one line: reason, line in the file, field, what is accepted."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.load import load_documents, read_documents
from stoker.api.reasons import Reason

HEAD = "apiVersion: stoker.dev/v1alpha1\nkind: DataSet\nmetadata: {name: a}\n"


def refused(text: str) -> StokerError:
    with pytest.raises(StokerError) as error:
        load_documents(text, "dataset.yaml")
    return error.value


def spec(text: str) -> str:
    """A DataSet whose spec, from line 5 on, is `text`."""
    return f"{HEAD}spec:\n{textwrap.indent(textwrap.dedent(text).strip(), '  ')}\n"


BODY = {"apiVersion": "stoker.dev/v1alpha1", "kind": "DataSet", "metadata": {"name": "a"}}
SOURCE = "sources: [{uri: s3://b/}]\n"


@pytest.mark.parametrize(
    ("text", "reason", "place", "says"),
    [
        ("sources: [{uri: ftp://b/}]", Reason.UnknownScheme, "5: spec.sources[0].uri", "schemes are s3, gs"),
        ("sources:\n- uri: s3://b/\n  includ: []", Reason.UnknownField, "7: spec.sources[0].includ", "mean include?"),
        ("sources:\n- path: /x", Reason.MissingField, "6: spec.sources[0].uri", "Where the data is"),
        ("sources: []", Reason.InvalidValue, "5: spec.sources", "at least 1 item"),
        ("sourcs: []", Reason.UnknownField, "5: spec.sourcs", "mean sources?"),
        ("sources: s3://b/", Reason.InvalidValue, "5: spec.sources", "Write a list"),
        ("sources:", Reason.InvalidValue, "5: spec.sources", "remove the line"),
        (SOURCE + "mode: mount", Reason.InvalidValue, "6: spec.mode", "ro_mount, rw_mount, download"),
        (SOURCE + "mode: eval_mount", Reason.UnsupportedCombination, "6: spec.mode", "download, ro_mount, direct"),
        (SOURCE + "output: {}", Reason.UnsupportedCombination, "6: spec.output", "rw_mount or upload"),
        (SOURCE + "mode: off", Reason.InvalidValue, "6: spec.mode", "ro_mount"),
        (SOURCE + "mount:\n  fileMode: 0444", Reason.InvalidValue, "7: spec.mount.fileMode", 'in quotes: "0444"'),
        (SOURCE + "mount:\n  fileMode: '999'", Reason.InvalidValue, "7: spec.mount.fileMode", '"0444"'),
        (SOURCE + "asset: {name: on}", Reason.InvalidValue, "6: spec.asset.name", 'in quotes: "on"'),
        (SOURCE + "asset: {version: 1.10}", Reason.InvalidValue, "6: spec.asset.version", 'in quotes: "1.10"'),
        (SOURCE + "cache: {quota: 5GB}", Reason.InvalidValue, "6: spec.cache.quota", "500Gi"),
        (SOURCE + "cache: {quota: 1.5}", Reason.InvalidValue, "6: spec.cache.quota", "500Gi"),
        (SOURCE + "cache: {ttl: 30}", Reason.InvalidValue, "6: spec.cache.ttl", "30s"),
        (SOURCE + "cache: {priority: 1001}", Reason.InvalidValue, "6: spec.cache.priority", "1000"),
        (SOURCE + "cache: {priority: '7'}", Reason.InvalidValue, "6: spec.cache.priority", "whole number"),
        (SOURCE + "cache: {replicas: all}", Reason.InvalidValue, "6: spec.cache.replicas", "or All"),
        (SOURCE + "pin: ['**.tar']", Reason.InvalidValue, "6: spec.pin[0]", "**/*.tar"),
        (SOURCE + "preload: {when: Schedule}", Reason.MissingField, "6: spec.preload.schedule", "30 2 * * *"),
        (SOURCE + "preload: {schedule: '@daily'}", Reason.UnsupportedCombination, "6: spec.preload.schedule", "when"),
        (SOURCE + "preload: {timeZone: Moon}", Reason.InvalidValue, "6: spec.preload.timeZone", "Europe/Berlin"),
        (SOURCE + "identity: {mode: Secret}", Reason.MissingField, "6: spec.identity.secretRef", "secretRef: {name"),
        ("sources: [{uri: s3://b/, path: train}]", Reason.InvalidValue, "5: spec.sources[0].path", "/train"),
        ("sources: [{uri: s3://b/, path: /a/../b}]", Reason.InvalidValue, "5: spec.sources[0].path", "/train"),
        ("sources: [{uri: s3://b/, endpoint: host}]", Reason.InvalidValue, "5: spec.sources[0].endpoint", "http(s)"),
        (
            "sources:\n- {uri: s3://b/, name: x}\n- {uri: s3://c/, name: x}",
            Reason.InvalidValue,
            "7: spec.sources[1].name",
            "its own",
        ),
        (
            "type: uri_file\nsources: [{uri: s3://b/k}, {uri: s3://b/l}]",
            Reason.UnsupportedCombination,
            "5: spec.type",
            "Remove type",
        ),
        (
            "type: uri_file\nsources: [{uri: s3://b/k/}]",
            Reason.UnsupportedCombination,
            "6: spec.sources[0].uri",
            "Remove the slash",
        ),
    ],
)
def test_a_wrong_field(text: str, reason: Reason, place: str, says: str) -> None:
    error = refused(spec(text))
    assert (error.reason, error.place) == (reason, f"dataset.yaml:{place}")
    assert says in error.next_step
    assert "\n" not in error.line()


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ("a: [1,\nb: 2", Reason.InvalidYaml, "dataset.yaml:2"),
        ("a: b: c", Reason.InvalidYaml, "dataset.yaml:1"),
        ("a:\n\tb: 1", Reason.InvalidYaml, "dataset.yaml:2"),
        ("a: 1\na: 2", Reason.InvalidYaml, "dataset.yaml:2"),
        ("a: 1\nb: \x01", Reason.InvalidYaml, "dataset.yaml:2"),
        ("a: !!python/object:os.system 1", Reason.InvalidYaml, "dataset.yaml:1"),
        ("a: &x [*x]", Reason.InvalidYaml, "dataset.yaml:1"),
        ("[" * 5000, Reason.InvalidYaml, "dataset.yaml"),
        ("", Reason.InvalidYaml, "dataset.yaml"),
        ("---\n---\n# nothing\n", Reason.InvalidYaml, "dataset.yaml"),
        ("just text", Reason.InvalidYaml, "dataset.yaml:1"),
        ("- 1", Reason.InvalidYaml, "dataset.yaml:1"),
        ("apiVersion: stoker.dev/v1alpha1\nkind: Dataset\n", Reason.UnknownKind, "dataset.yaml:2: kind"),
        ("apiVersion: v1\nkind: Pod\n", Reason.UnknownKind, "dataset.yaml:1: apiVersion"),
        ("kind: DataSet\n", Reason.MissingField, "dataset.yaml:1: apiVersion"),
        ("# a\n\napiVersion: stoker.dev/v1alpha1\nkind: DataSet\n", Reason.MissingField, "dataset.yaml:3: metadata"),
    ],
)
def test_what_is_no_document(text: str, reason: Reason, place: str) -> None:
    error = refused(text)
    assert (error.reason, error.place) == (reason, place)
    assert error.next_step
    assert "\n" not in error.line()


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    error = refused("\n".join(["l0: &l0 [x]", *levels]))
    assert error.reason is Reason.InvalidYaml
    assert "too many" in error.message


def test_several_documents_know_their_lines() -> None:
    text = f"{spec(SOURCE)}---\n---\n{spec(SOURCE)}"
    assert [(d.kind, d.place) for d in load_documents(text, "f.yaml")] == [
        ("DataSet", "f.yaml:1"),
        ("DataSet", "f.yaml:8"),
    ]
    error = refused(text + "---\n" + spec(SOURCE + "x: 1"))
    assert error.place == "dataset.yaml:19: spec.x"


def test_more_than_one_mistake_is_said() -> None:
    assert "(and 2 more)" in refused(spec(SOURCE + "a: 1\nb: 2\nc: 3")).message
    assert "more" not in refused(spec("sources: [{uri: nowhere}]")).message


def test_json_is_yaml() -> None:
    (document,) = load_documents(json.dumps(BODY | {"spec": {"sources": [{"uri": "s3://b/"}]}}, indent=1), "a.json")
    assert document.model.full_name == "default/a"


def test_anchors_and_merges_work_as_in_kubectl() -> None:
    text = spec(
        """
        sources:
        - &common {uri: s3://b/, include: ["a/**"], region: x}
        - {<<: *common, uri: s3://c/}
        """
    )
    model = load_documents(text, "a.yaml")[0].model
    assert isinstance(model, DataSet)
    assert [(s.uri, s.region, s.include) for s in model.spec.sources] == [
        ("s3://b/", "x", ("a/**",)),
        ("s3://c/", "x", ("a/**",)),
    ]


def test_what_kubectl_prints_can_be_read_back() -> None:
    text = """
        apiVersion: stoker.dev/v1alpha1
        kind: DataSet
        metadata:
          name: a
          namespace: vision
          creationTimestamp: null
          resourceVersion: "12"
          managedFields: [{manager: kubectl}]
        spec: {sources: [{uri: "s3://b/"}]}
        status:
          phase: Ready
          conditions: [{type: Ready, status: "True", lastTransitionTime: 2026-01-01T00:00:00Z, reason: Ready}]
        """
    (document,) = load_documents(textwrap.dedent(text), "a.yaml")
    assert document.model.full_name == "vision/a"


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "dataset.yaml"
    with pytest.raises(StokerError) as error:
        read_documents(str(path))
    assert (error.value.reason, error.value.place) == (Reason.FileNotFound, str(path))
    with pytest.raises(StokerError) as error:
        read_documents(str(tmp_path))
    assert "directory" in error.value.message
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(StokerError) as error:
        read_documents(str(path))
    assert (error.value.reason, error.value.place) == (Reason.InvalidYaml, f"{path}:2")
    path.write_bytes(b"\xef\xbb\xbf" + spec(SOURCE).encode())
    assert len(read_documents(str(path))) == 1
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(StokerError, match="longer than"):
        read_documents(str(path))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(spec(SOURCE).encode())))
    (document,) = read_documents("-")
    assert document.place == "standard input:1"


def test_plain_data_has_field_paths_and_no_lines() -> None:
    with pytest.raises(StokerError) as error:
        DataSet.from_body(BODY | {"spec": {"sources": [{}]}})
    assert (error.value.reason, error.value.place) == (Reason.MissingField, "spec.sources[0].uri")
