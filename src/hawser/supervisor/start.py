"""Starting a worker from an app: here, or in processes of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hawser.client.app_loader import spec_of
from hawser.errors import ConfigError

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.telemetry.logs import LogOptions
    from hawser.worker.options import MetricsOptions, WorkerOptions


def run_worker(app: Hawser, options: WorkerOptions) -> int:
    """Work until a signal; the exit code. One process works here, more of them under this one as their supervisor."""
    spec = spec_of(app)
    if options.processes > 1 or options.most_processes > 1:
        if spec is None:
            raise ConfigError(
                "processes: the other processes cannot find the app; keep it in a module or script under a name of its own"
            )
        return run_supervisor(spec, options, store=app.config.store)
    from hawser.supervisor.embedded import embedded  # noqa: PLC0415  # as above
    from hawser.worker.loop import run_guarded  # noqa: PLC0415  # not needed by producers
    from hawser.worker.signals import stop_on_signals, tell_stacks  # noqa: PLC0415  # as above

    async def main() -> int:
        stop = asyncio.Event()
        stop_on_signals(stop)
        tell_stacks()
        return await embedded(app, options, stop, spec=spec)

    run_guarded(main())
    return 0


def run_supervisor(
    app: str,
    options: WorkerOptions,
    *,
    store: str | None = None,
    logs: LogOptions | None = None,
    metrics: MetricsOptions | None = None,
) -> int:
    """Run a supervisor in this process; the exit code."""
    if store is not None and store.startswith("memory:"):
        raise ConfigError("store: memory:// lives in one process; use app.run_worker(), or a store that processes can share")

    from hawser.supervisor.supervisor import Supervisor  # noqa: PLC0415  # not needed by producers

    async def main() -> int:
        return await Supervisor(app, options, store=store, logs=logs, metrics=metrics).run()

    return asyncio.run(main())
