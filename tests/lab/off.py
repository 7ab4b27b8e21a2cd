"""Every protection is taken away once, and the experiment that is there for it must notice.

    python -m tests.lab.off [--out DIR]

Prints a line for each; exit code 1 when one of them held. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from hawser.lab import trial
from hawser.lab.app import STALL
from hawser.lab.chaos.processes import PROGRAM
from hawser.lab.experiment import run
from hawser.lab.experiments import loss
from hawser.lab.load import quiet

UNFENCED = {
    "app": "tests.lab.unfenced:app",
    "program": (sys.executable, "-m", "tests.lab.unfenced"),
    "environs": [{STALL: "0.01,6"}],  # more often than usual: what the fence is for is rare
}
UNRENEWED = {"program": (sys.executable, "-m", "hawser.lab.without_renewal")}
AHEAD = {"app": "tests.lab.ahead:app"}
ON: dict[str, Any] = {"program": PROGRAM}

NOTICED = {"lost", "stale accepted", "settled twice", "attempts", "wrong end", "stuck", "claimed ahead"}

CASES: list[tuple[str, str, str, Mapping[str, Any], Mapping[str, float]]] = [
    ("the fence", "loss", "sqlite", UNFENCED, {"kills": 60}),
    ("the fence", "loss", "postgres", UNFENCED, {"kills": 60}),
    ("renewal", "loss", "sqlite", UNRENEWED, {"kills": 20}),
    ("renewal", "loss", "postgres", UNRENEWED, {"kills": 20}),
    ("claims of no more than can start", "loss", "sqlite", AHEAD, {"kills": 40}),
    ("claims of no more than can start", "loss", "postgres", AHEAD, {"kills": 40}),
    ("synchronous=full", "crash", "sqlite", ON, {"crashes": 4, "relaxed": 1}),
    ("synchronous_commit=on", "crash", "postgres", ON, {"crashes": 6, "relaxed": 1}),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", help="cases whose protection or experiment has this word")
    asked = parser.parse_args()
    unnoticed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, (protection, experiment, store, changes, given) in enumerate(CASES):
            if asked.only and asked.only not in f"{protection} {experiment} {store}":
                continue
            real = trial.trial

            def changed(*arguments: Any, _changes: Mapping[str, Any] = changes, _real: Any = real, **options: Any) -> Any:
                return _real(*arguments, **{**options, **_changes})

            with mock.patch.object(loss, "trial", changed):
                out = (asked.out or Path(scratch)) / str(number)
                result = run(experiment, store, out, seed=1, quick=False, given=given, show=quiet)
            kinds = ", ".join(line.partition(":")[0] for line in result.broken) or "nothing"
            unnoticed += not NOTICED & set(kinds.split(", "))
            print(f"without {protection}, {experiment} on {store}: {result.verdict}; found {kinds}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
