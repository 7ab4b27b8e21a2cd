"""Awaits a handler step by step, and tells the board at each moment whether it has the process."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any

from hawser.worker.board import Board


@types.coroutine
def watched(handler: Coroutine[Any, Any, Any], board: Board, cell: int) -> Generator[Any, Any, Any]:
    """The handler's value. When the process dies inside of a step, the board still says whose step it was."""
    enter = board.enter
    enter(cell)
    try:
        yielded = handler.send(None)
        while True:
            enter(0)
            try:
                sent = yield yielded
            except GeneratorExit:
                handler.close()
                raise
            except BaseException as error:  # noqa: BLE001  # a cancellation, for one: the handler's to deal with
                enter(cell)
                yielded = handler.throw(error)
            else:
                enter(cell)
                yielded = handler.send(sent)
    except StopIteration as stop:
        return stop.value
    finally:
        enter(0)
