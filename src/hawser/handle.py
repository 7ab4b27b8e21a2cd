"""What enqueue gives back: the job's id, and a way to wait for its end."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from hawser.errors import ConfigError
from hawser.job import NewJob

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ResultSource(Protocol):
    """Where a handle asks how its job ended."""

    def result(self, id: str, task: str, timeout: float | None) -> Any:
        """What the job returned, for a caller whose thread waits."""

    async def wait(self, id: str, task: str, timeout: float | None) -> Any:
        """The same for a coroutine."""

    def check_kept(self, task: str) -> None:
        """Raises `ConfigError` when nothing is kept of the task's done jobs."""

    def decoded(self, task: str, result: bytes) -> Any:
        """A result, as the type that the task is said to return."""


class TypedJob(NewJob, Generic[R_co], frozen=True, kw_only=True, gc=False):
    """For type checkers: a new job whose run returns that."""


class Handle(msgspec.Struct, Generic[R], frozen=True, eq=False):
    """What enqueue gives back. Two handles are equal when they name the same job and say the same of it."""

    id: str
    created: bool = True
    """False when an earlier job holds the same key, then `id` is that job's; or when the job with this id was there before."""
    task: str = ""
    source: ResultSource | None = None
    """None where the handle belongs to no app."""
    replaced: bool = False
    """Whether the payload of this call has taken the place of an earlier one's, in a job that is debounced."""

    def result(self, timeout: float | None = 30.0) -> R:
        """Wait for the job's end, and give what its handler returned; the calling thread waits meanwhile.

        `JobFailed` carries the error of a job that is dead or cancelled. `ResultTimeout` is raised after `timeout` seconds; the
        job goes on. None waits without an end.
        """
        value: R = self._source().result(self.id, self.task, timeout)
        return value

    async def wait(self, timeout: float | None = None) -> R:
        """`result` for a coroutine; None, the default, waits without an end."""
        value: R = await self._source().wait(self.id, self.task, timeout)
        return value

    def _source(self) -> ResultSource:
        if self.source is None:
            raise ConfigError("result: this handle belongs to no app; wait with a handle that app.enqueue or task.enqueue gave")
        return self.source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.id, self.created) == (other.id, other.created)

    def __hash__(self) -> int:
        return hash((self.id, self.created))

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, created={self.created!r})"
