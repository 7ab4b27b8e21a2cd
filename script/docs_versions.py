"""Puts the versions of the documentation site that were built side by side: python script/docs_versions.py site

Each stands in a folder of its own, named as the version. Writes `versions.json`, from which MkDocs Material makes its selector,
and an `index.html` that leads to the newest; one in each folder leads to its first page.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

LEAD = """<!doctype html><meta charset="utf-8"><title>Hawser</title>
<meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Hawser</a>
"""


def versions_in(site: Path) -> list[str]:
    """Newest first."""
    built = [folder.name for folder in site.iterdir() if (folder / "start").is_dir()]
    return sorted(filter(_numbers, built), key=_numbers, reverse=True)


def _numbers(version: str) -> tuple[int, ...]:
    """What a version is ordered by; nothing for a folder that is none."""
    return tuple(map(int, re.findall(r"\d+", version))) if re.match(r"\d+\.\d+", version) else ()


def main(site: Path) -> None:
    newest, *older = versions_in(site)
    listed = [{"version": newest, "title": newest, "aliases": ["latest"]}]
    listed += [{"version": version, "title": version, "aliases": []} for version in older]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(LEAD.format(f"{newest}/"), encoding="utf-8")
    for version in (newest, *older):
        (site / version / "index.html").write_text(LEAD.format("start/"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
