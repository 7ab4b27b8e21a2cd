"""`hawser` without the renewal of leases, for the experiment that shows what renewal is for. Never run real work with it.

python -m hawser.lab.unrenewed worker app.py …
"""

from __future__ import annotations

import runpy

from hawser.worker import minder
from hawser.worker.keeper import Keeper


class Idle(Keeper):
    """Extends nothing."""

    async def turn(self) -> float:
        return 1.0


if __name__ == "__main__":
    setattr(minder, "Keeper", Idle)  # noqa: B010  # where the supervisor's own part finds it
    runpy.run_module("hawser.cli", run_name="__main__")
