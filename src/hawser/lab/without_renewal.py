"""`hawser` without the renewal of leases, for the experiment that shows what renewal is for. Never run real work with it.

python -m hawser.lab.without_renewal worker app.py …
"""

from __future__ import annotations

import runpy

from hawser.supervisor import maintenance
from hawser.supervisor.extender import Extender


class Idle(Extender):
    """Extends nothing."""

    async def turn(self) -> float:
        return 1.0


if __name__ == "__main__":
    setattr(maintenance, "Extender", Idle)  # noqa: B010  # where the supervisor's own part finds it
    runpy.run_module("hawser.cli", run_name="__main__")
