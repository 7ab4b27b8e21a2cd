"""Every attack as one command: kills, freezes, forks, clocks, proxies, cut connections, lost and full disks, full pipes, signals.

    python -m tests.drills.attack                      all cases, a table at the end
    python -m tests.drills.attack fork-during-a-write  the named ones
    python -m tests.drills.attack --list               what there is
    python -m tests.drills.attack --store sqlite       those of one store

Exit code 1 when a promise was broken. Each case runs in a process of its own with a time limit, so that one that hangs
is reported and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from tests.drills import cases
from tests.drills.case import Case, Seen

TIME_LIMIT = 240.0
"""Seconds for one case."""


def all_cases() -> dict[str, Case]:
    """Every case by name, in the order of modules."""
    found: dict[str, Case] = {}
    for module in pkgutil.iter_modules(cases.__path__):
        for case in import_module(f"{cases.__name__}.{module.name}").CASES:
            assert case.name not in found, f"two cases are called {case.name}"
            found[case.name] = case
    return found


def play(name: str) -> None:
    """Run one case in this process and print what it saw as JSON."""
    with tempfile.TemporaryDirectory(prefix="hawser-attack-") as folder:
        seen = all_cases()[name].run(Path(folder))
    print(json.dumps({"held": seen.held, "text": seen.text}), flush=True)


def heed_signals() -> None:
    """What was started with `nohup`, or with `&` in a script, ignores signals, and so would the workers that it starts."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def play_apart(case: Case, limit: float) -> Seen:
    """Run one case in a process group of its own; whatever is left of the group afterwards is killed."""
    command = [sys.executable, "-m", "tests.drills.attack", "--play", case.name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return Seen(held=False, text=f"did not end within {limit:g} s")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    lines = out.strip().splitlines()
    if process.returncode or not lines:
        last = (errors.strip().splitlines() or ["no output"])[-1]
        return Seen(held=False, text=f"the case itself failed: {last}")
    return Seen(**json.loads(lines[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--store", choices=["sqlite", "postgres", "redis", "any"], help="only the cases of this store")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT, help="seconds for one case  [default: %(default)g]")
    parser.add_argument("--play", metavar="CASE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        heed_signals()
        play(args.play)
        return 0
    found = all_cases()
    if unknown := [name for name in args.names if name not in found]:
        parser.error(f"unknown case {unknown[0]!r}; --list has the names")
    chosen = [case for case in found.values() if not args.names or case.name in args.names]
    chosen = [case for case in chosen if args.store in (None, case.store)]
    broken = 0
    print("| case | store | fault | wanted | held | seen |\n|---|---|---|---|---|---|")
    for case in chosen:
        cells = [case.name, case.store, case.fault, case.wanted]
        if args.list:
            print(f"| {' | '.join(cells)} | | |")
            continue
        began = time.monotonic()
        seen = play_apart(case, args.limit)
        broken += not seen.held
        cells += ["yes" if seen.held else "**no**", f"{seen.text} ({time.monotonic() - began:.0f} s)"]
        print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
