"""Log lines that are not read are dropped and counted; logging does not wait."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import select
import time
from collections.abc import Iterator

import pytest

from hawser.telemetry import lines
from hawser.telemetry.lines import LineHandler

PATIENCE = 10.0
SMALL = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, SMALL)
    yield reads, writes
    os.close(reads)
    os.close(writes)


def logger_of(handler: LineHandler) -> logging.Logger:
    logger = logging.getLogger(f"test-{id(handler)}")
    logger.propagate = False
    logger.handlers = [handler]
    return logger


def read_until(fd: int, word: str) -> str:
    text = ""
    end = time.monotonic() + PATIENCE
    while word not in text:
        assert time.monotonic() < end, text[-200:]
        if select.select([fd], [], [], 0.1)[0]:
            text += os.read(fd, 65_536).decode()
    return text


def test_lines_come_in_order(pipe: tuple[int, int]):
    reads, writes = pipe
    handler = LineHandler(writes)
    for number in range(20):
        logger_of(handler).warning("line %d", number)
    handler.flush(PATIENCE)
    assert os.read(reads, SMALL).decode() == "".join(f"line {number}\n" for number in range(20))


def test_who_logs_to_a_full_pipe_does_not_wait_and_the_lost_are_counted(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "LINES_WAITING", 50)
    reads, writes = pipe
    handler = LineHandler(writes)
    logger = logger_of(handler)
    for number in range(1_000):
        logger.warning("line %d %s", number, "x" * 100)
    # The pipe has room for less than 40, the line under way is one, and 50 wait.
    assert 1_000 - handler.dropped <= 40 + 1 + 50
    began = time.monotonic()
    handler.flush(0.1)
    assert time.monotonic() - began < PATIENCE
    text, end = "", time.monotonic() + PATIENCE
    # Some may be told before the pipe is full.
    dropped = re.compile(r"^(\d+) log lines were dropped: standard error was not read$", re.MULTILINE)
    while sum(map(int, dropped.findall(text))) < handler.dropped:
        assert time.monotonic() < end, text[-200:]
        if select.select([reads], [], [], 0.1)[0]:
            text += os.read(reads, 65_536).decode()
    handler.flush(PATIENCE)  # or its thread would write into what has the number of this pipe next
    assert text.startswith("line 0 ")


def test_the_last_line_is_written_before_the_end():
    """A line that the thread has taken and not yet written counts as not written."""
    for _ in range(200):
        reads, writes = os.pipe()
        handler = LineHandler(writes)
        handler.put("the last words")
        handler.flush(PATIENCE)
        os.set_blocking(reads, False)
        assert os.read(reads, 100) == b"the last words\n"
        os.close(reads)
        os.close(writes)


def test_a_reader_who_has_gone_is_no_error(pipe: tuple[int, int]):
    reads, writes = pipe
    handler = LineHandler(os.dup(writes))
    gone, kept = os.pipe()
    os.close(gone)
    os.dup2(kept, handler._fd)
    os.close(kept)
    logger_of(handler).warning("nobody hears this")
    handler.flush(PATIENCE)
    assert handler.dropped == 1
    os.close(handler._fd)
    assert reads


def test_a_forked_child_logs_with_a_thread_of_its_own(pipe: tuple[int, int]):
    reads, writes = pipe
    handler = LineHandler(writes)
    logger = logger_of(handler)
    logger.warning("parent")
    handler.flush(PATIENCE)
    pid = os.fork()
    if not pid:
        logger.warning("child")
        handler.flush(PATIENCE)
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reads, SMALL) == b"parent\nchild\n"
