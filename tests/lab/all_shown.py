"""Whether the report of `hawser lab all` shows each experiment that a store can take, with a picture.

    python -m tests.lab.all_shown FOLDER STORE

Prints what is missing; exit code 1 when anything is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hawser.lab.experiment import EXPERIMENTS, left_out


def missing(folder: Path, store: str) -> list[str]:
    """The experiments without a section, or without a picture in it."""
    text = (folder / "report.html").read_text()
    sections = dict(re.findall(r"<section [^>]*><h2>(\w+) on .*?</h2>(.*?)</section>", text, re.DOTALL))
    wanted = [name for name in EXPERIMENTS if left_out(name, store) is None]
    return [
        *(f"{name}: no section" for name in wanted if name not in sections),
        *(f"{name}: no picture" for name, section in sections.items() if "<svg" not in section),
    ]


if __name__ == "__main__":
    found = missing(Path(sys.argv[1]), sys.argv[2])
    print("\n".join(found))
    sys.exit(1 if found else 0)
