"""Tracebacks as text, for jobs that fail again and again at the same place."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterator
from types import CodeType, TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST_FRAMES: Final = 50
"""Of one traceback: the innermost."""

REMEMBERED: Final = 1_000
"""Frames whose text is remembered. Then all are forgotten, which is cheaper than to know which of them are old."""


class _Frames(traceback.StackSummary):
    """The frames of a traceback. To find what to mark in a line, Python walks through the code of each frame and parses the line:
    most of the 100 µs that a failure six calls deep took. For all jobs that fail there it is the same."""

    _known: ClassVar[dict[tuple[CodeType, str, int, int], traceback.FrameSummary]] = {}
    _texts: ClassVar[dict[tuple[object, ...], str]] = {}

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Those of an exception."""
        steps: deque[TracebackType] = deque(maxlen=MOST_FRAMES)
        step = error.__traceback__
        while step is not None:
            steps.append(step)
            step = step.tb_next
        return cls(map(cls._summary, steps))

    @classmethod
    def _summary(cls, step: TracebackType) -> traceback.FrameSummary:
        code = step.tb_frame.f_code
        place = code, code.co_filename, step.tb_lasti, step.tb_lineno  # code of two files may be equal
        found = cls._known.get(place)
        if found is None:
            [found] = traceback.extract_tb(step, limit=1)
            _remember(cls._known, place, found)
        return found

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **how: Any) -> str:
        frame: Any = frame_summary
        marks = frame.lineno, frame.end_lineno, frame.colno, frame.end_colno
        place = frame.filename, frame.name, frame.line, *marks, *how.items()
        text = self._texts.get(place)
        if text is None:
            text = super().format_frame_summary(frame_summary, **how)
            _remember(self._texts, place, text)
        return text


def _remember(known: dict[K, V], place: K, found: V) -> None:
    if len(known) >= REMEMBERED:
        known.clear()
    known[place] = found


def traceback_text(error: BaseException) -> str:
    """As `traceback.format_exception` has it."""
    found = traceback.TracebackException(type(error), error, error.__traceback__, limit=0, compact=True)
    for each, of in _chained(found, error):
        if of.__traceback__ is not None:
            each.stack = _Frames.of(of)
    if error.__traceback__ is None or found.__cause__ is not None or found.__context__ is not None or found.exceptions:
        return "".join(found.format())
    # Python would indent each frame by nothing, line by line: half of what is left of the cost.
    return "".join(("Traceback (most recent call last):\n", *found.stack.format(), *found.format_exception_only()))


def _chained(
    found: traceback.TracebackException, error: BaseException
) -> Iterator[tuple[traceback.TracebackException, BaseException]]:
    """It, what caused it, and what is in it, if it is a group."""
    left: list[tuple[traceback.TracebackException | None, BaseException | None]] = [(found, error)]
    while left:
        each, of = left.pop()
        if each is None or of is None:
            continue
        yield each, of
        left += [(each.__cause__, of.__cause__), (each.__context__, of.__context__)]
        if isinstance(of, BaseExceptionGroup):
            left += zip(each.exceptions or (), of.exceptions, strict=True)
