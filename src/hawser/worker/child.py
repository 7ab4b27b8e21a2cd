"""A worker process under a supervisor: python -m hawser.worker.child, with its orders in HAWSER_CHILD."""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import os
import signal
import sys
from contextlib import suppress
from typing import Final

import msgspec

from hawser.errors import ConfigError, HawserError
from hawser.outcome import describe
from hawser.target import find_app
from hawser.telemetry.logs import configure
from hawser.worker.board import Board
from hawser.worker.notice import SIZE, Notice
from hawser.worker.orders import AWAY, VARIABLE, Orders, Status
from hawser.worker.orphan import die_with
from hawser.worker.unserved import unserved
from hawser.worker.worker import Worker, retentions, run_loop, stop_on_signals

_logger = logging.getLogger("hawser.worker")

COLLECT_AFTER: Final = 10_000
"""Objects; Python's own is 700."""


def main() -> None:
    orders = msgspec.json.decode(os.environ.pop(VARIABLE), type=Orders)
    die_with(orders.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all of us; the supervisor decides
    configure(orders.logs)
    if orders.store:
        os.environ["HAWSER_STORE"] = orders.store
    try:
        app = find_app(orders.app)
        if orders.store:
            app.use_store(orders.store)
        _collect_less()
        stuck = run_loop(_work(app, orders))
    except HawserError as error:
        _logger.debug("the worker process does not start", exc_info=True)
        _say(orders, Status(error=str(error)))
        sys.exit(2 if isinstance(error, ConfigError) else AWAY)
    except Exception as error:
        _logger.debug("the worker process failed", exc_info=True)
        _say(orders, Status(error=f"app: {orders.app!r} failed: {describe(error)}; --debug shows the traceback"))
        sys.exit(2)
    sys.stdout.flush()
    sys.stderr.flush()
    if stuck:
        os._exit(0)  # a thread that would not end must not keep the process; the supervisor hands its job back


def _collect_less() -> None:
    """Thousands of jobs a second are thousands of short lives, which look like garbage to come. What was loaded stays: it is not
    looked at again; and the rest is looked at after so many more objects than left that a batch of jobs does not cause it."""
    gc.collect()
    gc.freeze()
    after, *older = gc.get_threshold()
    if 0 < after < COLLECT_AFTER:  # the app may have its own
        gc.set_threshold(COLLECT_AFTER, *older)


async def _work(app: object, orders: Orders) -> int:
    from hawser.app import Hawser  # noqa: PLC0415  # only for the type

    assert isinstance(app, Hawser)
    stop = asyncio.Event()
    stop_on_signals(stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if app.store_url is None:
        raise ConfigError("store: the app was made with a store object, which other processes cannot find; make it with a URL")
    store = await app.store()
    memory = mmap.mmap(orders.board, Board.size(orders.cells))
    notice = Notice(mmap.mmap(orders.notice, SIZE))
    board = Board(memory, orders.cells)
    worker = Worker(
        app, orders.options, board, orders.name, spec=orders.app, notice=notice, events=app.events, readings=orders.readings
    )
    status = Status(
        store=app.store_url,
        retention=app.config.retention,
        by_task=retentions(app),
        unserved=unserved(app, orders.options),
        schedules=tuple(app.declared()),
    )
    _say(orders, status)
    await worker.run(store, stop)
    return worker.stuck


def _say(orders: Orders, status: Status) -> None:
    """Once: afterwards the number of the pipe may be that of any file or socket."""
    if orders.status in _told:
        return
    _told.add(orders.status)
    with suppress(OSError):
        os.write(orders.status, msgspec.json.encode(status) + b"\n")
    os.close(orders.status)


_told: set[int] = set()
"""Pipes to which the status was written."""


if __name__ == "__main__":
    main()
