"""The RUN steps of `deploy/Dockerfile`, one after the other, in a folder: no container engine is needed.

    python -m tests.drills.image        as root; two minutes, most of them for pip

What is not shown: the base images, the layers, and that nothing else of this machine is needed, for its own Python and libraries
are there. The commands of the image, CMD and HEALTHCHECK, are run by tests/deploy/test_image.py. Prints how large the environment
is that the image copies. Exit code 1 when a step fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
STEPS: Final = re.findall(r"^RUN (.+)$", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)

FILES: Final = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "shadow": "root:*:1::::::\n",
    "group": "root:x:0:\n",
    "gshadow": "root:*::\n",
    "login.defs": "SYS_UID_MIN 101\nSYS_UID_MAX 999\nSYS_GID_MIN 101\nSYS_GID_MAX 999\nUSERGROUPS_ENAB yes\n",
}
"""What `useradd` needs to find, as the base image has it."""


def main() -> int:
    install, user = STEPS  # a third step would need a place here
    with tempfile.TemporaryDirectory(prefix="hawser-image-") as name:
        folder = Path(name)
        began = time.monotonic()
        environment = folder / "opt" / "hawser"
        _run(install.replace("/opt/hawser", str(environment)).replace("/src", str(ROOT)))
        print(f"installed in {time.monotonic() - began:.0f} s: {_megabytes(environment):.0f} MB")
        said = _run(f"env -i PATH={environment}/bin:/usr/bin:/bin hawser --version")
        print(said.strip())
        (folder / "etc").mkdir()
        for file, text in FILES.items():
            (folder / "etc" / file).write_text(text)
        _run(user.replace("useradd ", f"useradd --prefix {folder} "))
        made = (folder / "etc" / "passwd").read_text().splitlines()[-1]
        print(made)
        home = folder / "app"
        return int(not made.startswith("hawser:x:10001:") or not home.is_dir() or home.stat().st_uid != 10_001)


def _run(step: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", step], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        sys.exit(f"{step}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _megabytes(folder: Path) -> float:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink()) / 1e6


if __name__ == "__main__":
    sys.exit(main())
