"""Requests made from the admin API's own document, right ones and wrong ones: each answer is one that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from servers.secured import Secured, secured
from stoker.node.admin.openapi import document
from stoker.node.api import ROUTES

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    allow_header_conformance,
    negative_data_rejection,
]
SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))
ASKED = [
    (route.method, route.path, mode)
    for route in ROUTES
    for mode in GenerationMode
    if route.path != "/v1/shutdown" and (mode is GenerationMode.POSITIVE or route.query or route.body)
]


@pytest.fixture(scope="module")
def node() -> Iterator[Secured]:
    with secured(STOKER_S3_PORT="0") as found:
        yield found


@pytest.mark.parametrize(("method", "path", "mode"), ASKED)
def test_answers_are_those_of_the_document(node: Secured, method: str, path: str, mode: GenerationMode) -> None:
    operation = SCHEMA[path][method]
    kwargs: dict[str, Any] = {
        "verify": str(node.authority.ca),
        "cert": (str(node.client.cert), str(node.client.key)),
        "timeout": 20,
    }

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=8,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Case) -> None:
        _stay_here(case)
        case.call_and_validate(base_url=f"https://127.0.0.1:{node.port}", checks=CHECKS, **kwargs)

    ask()


def _stay_here(case: Case) -> None:
    """No request to a store anywhere, and no long wait."""
    if isinstance(case.query, dict) and isinstance(case.query.get("timeout"), int | float):
        case.query["timeout"] = min(case.query["timeout"], 0.01)
    document = case.body.get("document") if isinstance(case.body, dict) else None
    spec = document.get("spec") if isinstance(document, dict) else None
    sources = spec.get("sources") if isinstance(spec, dict) else None
    for source in sources if isinstance(sources, list) else []:
        if isinstance(source, dict) and isinstance(source.get("uri"), str) and "://" in source["uri"]:
            source["uri"] = "file:///nowhere/"
            source.pop("replicas", None)
