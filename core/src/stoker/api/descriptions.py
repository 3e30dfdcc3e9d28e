"""The docstrings below the fields of the models: their descriptions in errors, in the editor schema and in the CRDs.

Read from the source when first asked for: pydantic's own way does it at import, which would cost each command 50 ms.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


@functools.cache
def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Attribute name -> description, each on one line, the fields of base classes included."""
    found: dict[str, str] = {}
    for base in model.__bases__:
        if issubclass(base, BaseModel) and base is not BaseModel:
            found.update(field_descriptions(base))
    definition = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(definition, ast.ClassDef)
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else ""
            found[field.target.id] = " ".join(str(text).split())
    return found
