"""Reads DataSets, CacheRuntimes and CacheJobs from files: the door through which documents come in.

Each refusal is one StokerError whose place is `file:line: field`.
"""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from stoker.api.base import API_VERSION
from stoker.api.cachejob import CacheJob
from stoker.api.cacheruntime import CacheRuntime
from stoker.api.dataset import DataSet
from stoker.api.errors import StokerError
from stoker.api.problems import first_error
from stoker.api.reasons import Reason
from stoker.api.yamltext import MAX_BYTES, YamlDocument, parse_yaml

_NEWLINE = b"\n"
KINDS: dict[str, type[DataSet | CacheRuntime | CacheJob]] = {
    "DataSet": DataSet,
    "CacheRuntime": CacheRuntime,
    "CacheJob": CacheJob,
}


@dataclass(frozen=True, slots=True)
class Document:
    """One document, and the `file:line` where it begins."""

    model: DataSet | CacheRuntime | CacheJob
    place: str

    @property
    def kind(self) -> str:
        return self.model.kind


def read_documents(path: str) -> list[Document]:
    """The documents of a file, or of standard input for `-`. Raises StokerError."""
    if path == "-":
        return load_documents(_decoded(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input"), "standard input")
    try:
        with open(path, "rb") as file:
            return load_documents(_decoded(file.read(MAX_BYTES + 1), path), path)
    except OSError as error:
        reason = Reason.FileNotFound if isinstance(error, FileNotFoundError) else Reason.PermissionDenied
        problem = (error.strerror or str(error)).lower()
        raise StokerError(reason, problem, place=path, next_step="Check the path given with -f.") from None


def load_documents(text: str, origin: str) -> list[Document]:
    """The documents of `text`; `origin` is the file name that errors show. Raises StokerError."""
    documents = [_load(document) for document in parse_yaml(text, origin)]
    if not documents:
        step = "Write a DataSet, such as examples/five-line.yaml."
        raise StokerError(Reason.InvalidYaml, "there is no document in it", place=origin, next_step=step)
    return documents


def _decoded(data: bytes, origin: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"{origin}:{data.count(_NEWLINE, 0, error.start) + 1}"
        step = "Save the file as UTF-8."
        raise StokerError(Reason.InvalidYaml, "it is not UTF-8 text", place=place, next_step=step) from None


def _load(document: YamlDocument) -> Document:
    model = _model(document)
    try:
        return Document(model.model_validate(document.data), document.place(()))
    except ValidationError as error:
        raise first_error(model, error, document) from None


def _model(document: YamlDocument) -> type[DataSet | CacheRuntime | CacheJob]:
    if not isinstance(document.data, dict):
        step = f"Begin it with apiVersion: {API_VERSION} and kind: DataSet."
        raise StokerError(Reason.InvalidYaml, "it is not a mapping", place=document.place(()), next_step=step)
    kind, version = document.data.get("kind"), document.data.get("apiVersion")
    if kind is None or version is None:
        missing = "kind" if kind is None else "apiVersion"
        step = f"Begin it with apiVersion: {API_VERSION} and kind: DataSet."
        raise StokerError(Reason.MissingField, "it is required", place=document.place((missing,)), next_step=step)
    if version != API_VERSION:
        step = f"Write apiVersion: {API_VERSION}."
        raise StokerError(
            Reason.UnknownKind, f"{version!r} is not known", place=document.place(("apiVersion",)), next_step=step
        )
    if kind not in KINDS:
        raise StokerError(
            Reason.UnknownKind, f"{kind!r} is not known", place=document.place(("kind",)), next_step=_known_kinds(kind)
        )
    return KINDS[kind]


def _known_kinds(kind: Any) -> str:
    close = difflib.get_close_matches(str(kind), KINDS, n=1)
    return f"Did you mean {close[0]}?" if close else f"The kinds are {', '.join(KINDS)}."
