"""Starting a worker from an app: here, or in processes of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hawser.errors import ConfigError
from hawser.target import spec_of

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.worker.options import WorkerOptions


def run_worker(app: Hawser, options: WorkerOptions) -> int:
    """Work until a signal; the exit code. One process works here, more of them under this one as their supervisor."""
    spec = spec_of(app)
    if options.processes > 1 or options.most_processes > 1:
        from hawser.worker.supervisor import run_supervisor  # noqa: PLC0415  # not needed by producers

        if spec is None:
            raise ConfigError(
                "processes: the other processes cannot find the app; keep it in a module or script under a name of its own"
            )
        return run_supervisor(spec, options, store=app.config.store)
    from hawser.worker.worker import embedded, run_loop, stop_on_signals  # noqa: PLC0415  # not needed by producers

    async def main() -> int:
        stop = asyncio.Event()
        stop_on_signals(stop)
        return await embedded(app, options, stop, spec=spec)

    run_loop(main())
    return 0
