"""`manage.py hawser_worker`: run the tasks of the project."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from hawser.contrib.django.backend import HawserBackend
from hawser.contrib.django.framework import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from hawser.errors import HawserError
from hawser.supervisor.start import run_supervisor
from hawser.telemetry.logs import LogOptions, configure
from hawser.worker.options import checked


class Command(BaseCommand):
    """The same as `hawser worker hawser.contrib.django.worker:app`, with the most used options."""

    help = (
        "Run the tasks of this project until SIGTERM or Ctrl-C. `hawser worker hawser.contrib.django.worker:app` has all options."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="The alias in TASKS.")
        parser.add_argument("--queues", help="critical:6,default:3; '*' is all. Default: the QUEUES of the backend.")
        parser.add_argument("--slots", type=int)
        parser.add_argument("--processes", type=int)
        parser.add_argument("--drain-timeout", type=float)
        parser.add_argument("--burst", action="store_true", default=None, help="End when nothing is due.")
        parser.add_argument("--log-format", choices=["plain", "json"], default="plain")

    def handle(self, *_: Any, **given: Any) -> None:
        backend = task_backends[given["backend"]]
        if not isinstance(backend, HawserBackend):
            raise CommandError(f"TASKS[{given['backend']!r}] is not a HawserBackend")
        os.environ["HAWSER_DJANGO_BACKEND"] = given["backend"]
        names = ("queues", "slots", "processes", "drain_timeout", "burst")
        logs = LogOptions(format=given["log_format"])
        configure(logs)
        try:
            options = checked(**{"queues": sorted(backend.queues) or "*", **{n: given[n] for n in names if given[n] is not None}})
            code = run_supervisor("hawser.contrib.django.worker:app", options, logs=logs)
        except HawserError as error:
            raise CommandError(str(error)) from error
        sys.exit(code)
