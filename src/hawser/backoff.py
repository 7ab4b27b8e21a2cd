"""How long to wait before the next attempt; full jitter by default, so that jobs that failed together do not all come back at
once."""

from __future__ import annotations

import random
from typing import Final, Literal, Protocol, assert_never, get_args

import msgspec

from hawser.clock import MAX_DELAY
from hawser.errors import ConfigError

Jitter = Literal["full", "equal", "added", "none"]
"""Where the wait lies, when the rule gives c seconds: full 0 … c, equal c/2 … c, added c … 1.5 c, none c."""

JITTERS: Final[tuple[Jitter, ...]] = get_args(Jitter)


class Rng(Protocol):
    """The one call that jitter needs of `random.Random`."""

    def uniform(self, a: float, b: float, /) -> float: ...


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The rule between two attempts; `delay` is what a worker calls."""

    jitter: Jitter = "full"
    """full: anywhere up to the rule's wait, which spreads a crowd best. equal: at least half of it. added: at least all of it,
    and up to half as much again, for a partner that says how long to wait. none: exactly it."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "jitter":
                if value not in JITTERS:
                    raise ConfigError(f"backoff jitter: {value!r} is not known; use {', '.join(map(repr, JITTERS))}")
            elif not 0 <= value <= MAX_DELAY:
                raise ConfigError(f"backoff {name}: {value!r} is not a time; use seconds, 0 to 10 years")

    def ceiling(self, attempt: int) -> float:
        """The wait after the n-th attempt failed (n counts from 1), before jitter."""
        raise NotImplementedError

    def delay(self, attempt: int, rng: Rng = random) -> float:
        """Seconds to wait after the n-th attempt failed, with its jitter."""
        ceiling = self.ceiling(attempt)
        match self.jitter:
            case "full":
                return rng.uniform(0, ceiling)
            case "equal":
                return rng.uniform(ceiling / 2, ceiling)
            case "added":
                return min(MAX_DELAY, rng.uniform(ceiling, ceiling * 1.5))
            case "none":
                return ceiling
            case _:
                assert_never(self.jitter)


class Exponential(Backoff, frozen=True, kw_only=True, tag_field="kind", tag="exponential"):
    """base, 2 x base, 4 x base … up to cap."""

    base: float = 30.0
    cap: float = 3600.0

    def ceiling(self, attempt: int) -> float:
        """The wait after the n-th attempt failed, before jitter."""
        # 2.0 ** 1100 overflows; the cap is reached long before.
        return min(self.cap, self.base * 2.0 ** min(attempt - 1, 64))


class Linear(Backoff, frozen=True, kw_only=True, tag_field="kind", tag="linear"):
    """step, 2 x step, 3 x step … up to cap."""

    step: float = 30.0
    cap: float = 3600.0

    def ceiling(self, attempt: int) -> float:
        """The wait after the n-th attempt failed, before jitter."""
        return min(self.cap, self.step * attempt)


class Fixed(Backoff, frozen=True, kw_only=True, tag_field="kind", tag="fixed"):
    """The same wait after every attempt."""

    every: float = 30.0

    def ceiling(self, attempt: int) -> float:  # noqa: ARG002  # the same for all
        """The wait after the n-th attempt failed, before jitter."""
        return self.every


BackoffRule = Exponential | Linear | Fixed
"""The rules that can be written down, for a store or another process; in JSON, `kind` says which."""
