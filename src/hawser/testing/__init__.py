"""For tests: a clock that stands still, a store that misbehaves, and the contract that every store must keep."""

from hawser.testing.clock import ManualClock
from hawser.testing.faults import Fault, FaultyStore

__all__ = ["Fault", "FaultyStore", "ManualClock"]
