"""The README's table of results, written from bench/results/latest.json.

`python -m bench.readme` writes it; with `--check` it only says whether the README holds what was measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.marks import keep
from bench.table import markdown

README, RESULTS = Path("README.md"), Path("bench/results/latest.json")


def main(arguments: list[str]) -> int:
    table = markdown(json.loads(RESULTS.read_text())) if RESULTS.exists() else ""
    check = "--check" in arguments
    return keep(README, {"bench": table}, RESULTS, check=check, command="python -m bench.readme")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
