"""The README's table of results, written from bench/results/latest.json.

`python -m bench.readme` writes it; with `--check` it only says whether the README holds what was measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.table import markdown

README, RESULTS = Path("README.md"), Path("bench/results/latest.json")
_BEGIN, _END = "<!-- bench:begin -->\n", "<!-- bench:end -->\n"


def filled(readme: str, table: str) -> str:
    """The README with `table` between its marks."""
    before, _begin, rest = readme.partition(_BEGIN)
    _old, _end, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table}{_END}{after}"


def main(arguments: list[str]) -> int:
    table = markdown(json.loads(RESULTS.read_text())) if RESULTS.exists() else ""
    readme = README.read_text()
    wanted = filled(readme, table)
    if "--check" not in arguments:
        README.write_text(wanted)
    elif wanted != readme:
        print("README.md does not show bench/results/latest.json; run: python -m bench.readme", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
