"""For tests: an app whose clock the test moves, a store that misbehaves, and the contract that every store must keep."""

from hawser.testing.app import AppUnderTest, Drained
from hawser.testing.clock import ManualClock
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore

__all__ = ["AppUnderTest", "Drained", "Fault", "FaultyStore", "ManualClock"]
