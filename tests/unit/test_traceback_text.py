"""Tracebacks of failed attempts: as Python's own, though their frames are remembered."""

import traceback
from collections.abc import Callable

import pytest

from hawser.value import traceback_text as texts
from hawser.value.traceback_text import MOST_FRAMES, REMEMBERED, traceback_text


def plain() -> None:
    raise ValueError("no such user")


def caused() -> None:
    try:
        raise KeyError("user")
    except KeyError as error:
        raise ValueError("no such user") from error


def meanwhile() -> None:
    try:
        raise KeyError("user")
    except KeyError:
        raise ValueError("no such user")  # noqa: B904  # the context is what is tested


def noted() -> None:
    error = ValueError("no such user")
    error.add_note("asked for by mail")
    raise error


def grouped() -> None:
    raise ExceptionGroup("several", [ValueError("one"), ExceptionGroup("more", [KeyError("two")])])


def misspelt() -> None:
    compile("1 +", "there.py", "eval")


def marked() -> None:
    found = {"b": 1}
    print(found["b"] + found["c"])


def deeper(how: Callable[[], None], depth: int) -> None:
    if depth:
        deeper(how, depth - 1)
    how()


def caught(how: Callable[[], None], depth: int = 0) -> BaseException:
    with pytest.raises(Exception) as error:  # noqa: PT011  # any of them
        deeper(how, depth)
    return error.value


@pytest.mark.parametrize("how", [plain, caused, meanwhile, noted, grouped, misspelt, marked])
@pytest.mark.parametrize("depth", [0, 3, 60])
def test_a_traceback_reads_as_python_writes_it_also_the_second_time(how: Callable[[], None], depth: int):
    error = caught(how, depth)
    wanted = "".join(traceback.format_exception(error, limit=-MOST_FRAMES))
    assert traceback_text(error) == wanted
    assert traceback_text(error) == wanted


def test_errors_that_were_never_raised_read_as_python_writes_them():
    alone, causing = ValueError("no such user"), caught(plain)
    causing.__cause__ = KeyError("user")
    for error in (alone, causing, ExceptionGroup("several", [alone])):
        assert traceback_text(error) == "".join(traceback.format_exception(error))


def test_frames_are_not_remembered_without_end():
    for number in range(REMEMBERED + 10):
        made = compile("def fail(): 1 / 0", f"made-{number}.py", "exec")
        names: dict[str, Callable[[], None]] = {}
        exec(made, names)
        assert f"made-{number}.py" in traceback_text(caught(names["fail"]))
    assert len(texts._Frames._texts) <= REMEMBERED
