"""The attack cases, one module per subject. Each module has a tuple `CASES`; `tests.drills.attack` finds them by itself."""
