"""docs/openapi.json, the OpenAPI document of the admin API, made of its routes.

`python -m stoker.node.openapi` writes the file; with `--check` it only says whether the file is what it would write.
"""

from __future__ import annotations

import json
import sys

from stoker.api.generated import write_or_check
from stoker.node.admin.openapi import document
from stoker.node.api import ROUTES

PATH = "docs/openapi.json"


def text() -> str:
    """The whole document."""
    return json.dumps(document(ROUTES), indent=1) + "\n"


def main(arguments: list[str]) -> int:
    return write_or_check(PATH, text(), arguments, "stoker.node.openapi")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
