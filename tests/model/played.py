"""What every machine has that plays histories: an oracle's clock, a store of its own, and comparing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from hawser.errors import StoreError
from hawser.store import Store
from hawser.testing.clock import ManualClock

T = TypeVar("T")


class Disagreement(AssertionError):
    """The store did not do what the model says."""


def same(what: str, got: Any, want: Any) -> None:
    if got != want:
        raise Disagreement(f"{what}:\n  the store says {got!r}\n  the model says {want!r}")


class Played(RuleBasedStateMachine):
    """A history on a store. One class says which store it is, another what is played; the model is set by that."""

    model: Any
    steady = True
    """False lets the clock be set back."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self.store = self.new_store()
        self.run(self.store.open())

    def new_store(self) -> Store:
        """A handle on this history's own, empty store; not yet open."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the handle on the store."""
        self.run(self.store.close())

    def reopen(self) -> None:
        """Come back after a stop."""
        raise NotImplementedError

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return self.loop.run_until_complete(call)
        except StoreError as error:
            raise Disagreement(f"the store failed: {error}") from error
