"""From a fresh clone to a dashboard whose figures move: how long a newcomer waits, with npm on the machine and without it.

    python -m tests.drills.first_look

Clones this repository into an empty folder, runs `script/demo --no-open` there, and asks its API until jobs are done. Without npm
the hook fetches Node.js as a Python package. pip's and npm's caches are new and empty. Prints one JSON object; exit code 1 when
one of the two took a minute or longer, or the page was not built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 60.0
NODE_PROGRAMS: Final = ("npm", "npx", "node")


def path_without_node(folder: Path) -> str:
    """A PATH whose folders hold all programs but those of Node.js."""
    kept = []
    for number, each in enumerate(dict.fromkeys(os.environ["PATH"].split(os.pathsep))):
        source = Path(each)
        if not any((source / name).exists() for name in NODE_PROGRAMS):
            kept.append(each)
            continue
        copy = folder / f"bin{number}"
        copy.mkdir(parents=True)
        for program in source.iterdir():
            if program.name not in NODE_PROGRAMS:
                (copy / program.name).symlink_to(program)
        kept.append(str(copy))
    return os.pathsep.join(kept)


def look(folder: Path, environ: dict[str, str]) -> float:
    """Seconds from the clone's start until jobs are done, by the page's own route."""
    began = time.monotonic()
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    with subprocess.Popen(
        ["sh", "script/demo", "--no-open"], cwd=clone, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        try:
            assert demo.stdout is not None
            address = next(found[0] for line in demo.stdout if (found := re.findall(r"http://127\.0\.0\.1:\d+", line)))
            page = httpx.get(f"{address}/ui/")
            assert page.status_code == 200, page.text
            while not httpx.get(f"{address}/overview").json()["totals"]["done"]:
                time.sleep(0.05)
            return round(time.monotonic() - began, 1)
        finally:
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(30)


def main() -> int:
    took: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in ("with npm", "without npm"):
            place = folder / case.replace(" ", "-")
            place.mkdir()
            caches = {"PIP_CACHE_DIR": str(place / "pip"), "npm_config_cache": str(place / "npm")}
            path = os.environ["PATH"] if case == "with npm" else path_without_node(place)
            assert (shutil.which("npm", path=path) is None) == (case == "without npm")
            took[case] = look(place, {**os.environ, **caches, "PATH": path})
    held = all(seconds < WITHIN_S for seconds in took.values())
    print(json.dumps({"seconds": took, "held": held}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
