"""A worker process under a supervisor: python -m hawser.worker.child, with its handshake in HAWSER_CHILD."""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import os
import sys
from contextlib import suppress
from typing import Final

import msgspec

from hawser.client.app_loader import find_app
from hawser.errors import ConfigError, HawserError
from hawser.outcome import describe
from hawser.telemetry.lines import end_streams
from hawser.telemetry.logs import configure, flush
from hawser.worker.board import Board, board_size
from hawser.worker.broadcast import BROADCAST_BYTES, Broadcast
from hawser.worker.handshake import CHILD_VARIABLE, NO_STORE_EXIT_CODE, Handshake, Status, facts_of
from hawser.worker.loop import run_guarded
from hawser.worker.orphan import die_with
from hawser.worker.signals import leave_to_the_supervisor, stop_on_signals, tell_stacks
from hawser.worker.unserved import unknown, unserved
from hawser.worker.worker import Worker

_logger = logging.getLogger("hawser.worker")

COLLECT_AFTER: Final = 10_000
"""Objects; Python's own is 700."""


def main() -> None:
    handshake = msgspec.json.decode(os.environ.pop(CHILD_VARIABLE), type=Handshake)
    die_with(handshake.parent_pid)
    leave_to_the_supervisor()
    tell_stacks()
    configure(handshake.logs)
    if handshake.store:
        os.environ["HAWSER_STORE"] = handshake.store
    try:
        app = find_app(handshake.app)
        if handshake.store:
            app.use_store(handshake.store)
        _collect_less()
        stuck = run_guarded(_work(app, handshake))
    except HawserError as error:
        _logger.debug("the worker process does not start", exc_info=True)
        _say(handshake, Status(error=str(error)))
        sys.exit(2 if isinstance(error, ConfigError) else NO_STORE_EXIT_CODE)
    except Exception as error:
        _logger.debug("the worker process failed", exc_info=True)
        _say(handshake, Status(error=f"app: {handshake.app!r} failed: {describe(error)}; --debug shows the traceback"))
        sys.exit(2)
    flush()
    if not end_streams() or stuck:
        # A thread that would not end must not keep the process; the supervisor hands its job back.
        os._exit(0)


def _collect_less() -> None:
    """Thousands of jobs a second make the garbage collector run often and find nothing. What is loaded now is frozen, so that it
    is not scanned again, and the threshold is so high that a batch of jobs does not start a collection."""
    gc.collect()
    gc.freeze()
    after, *older = gc.get_threshold()
    if 0 < after < COLLECT_AFTER:  # the app may have its own
        gc.set_threshold(COLLECT_AFTER, *older)


async def _work(app: object, handshake: Handshake) -> int:
    from hawser.app import Hawser  # noqa: PLC0415  # only for the type

    assert isinstance(app, Hawser)
    stop = asyncio.Event()
    stop_on_signals(stop)
    if app.store_url is None:
        raise ConfigError("store: the app was made with a store object, which other processes cannot find; make it with a URL")
    store = await app.store()
    memory = mmap.mmap(handshake.board_fd, board_size(handshake.cells))
    broadcast = Broadcast(mmap.mmap(handshake.broadcast_fd, BROADCAST_BYTES))
    board = Board(memory, handshake.cells)
    worker = Worker(
        app,
        handshake.options,
        board,
        handshake.name,
        spec=handshake.app,
        broadcast=broadcast,
        events=app.events,
        readings=handshake.metrics_file,
    )
    status = Status(
        store=app.store_url,
        app=facts_of(app, handshake.options),
        unserved=unserved(app, handshake.options),
        unknown=await unknown(app, handshake.options, store),
    )
    await app.hooks.start(app)
    try:
        _say(handshake, status)
        await worker.run(store, stop)
    finally:
        await app.hooks.stop(app)
    return worker.stuck


def _say(handshake: Handshake, status: Status) -> None:
    """Once: afterwards the number of the pipe may be that of any file or socket."""
    if handshake.status_fd in _told:
        return
    _told.add(handshake.status_fd)
    with suppress(OSError):
        os.write(handshake.status_fd, msgspec.json.encode(status) + b"\n")
    os.close(handshake.status_fd)


_told: set[int] = set()
"""Pipes to which the status was written."""


if __name__ == "__main__":
    main()
