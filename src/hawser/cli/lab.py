"""`hawser lab`: experiments on a store, each with a verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from hawser.cli import show
from hawser.cli.group import CommandGroup
from hawser.cli.progress import end_in_order, progress
from hawser.errors import ConfigError
from hawser.lab import report as page
from hawser.lab.experiment import EXPERIMENTS, Result, left_out, numbers_of, run
from hawser.lab.generator import WITH_LONG, LoadPlan

Settings = dict[str, float]


@click.group(cls=CommandGroup)
def lab() -> None:
    """Put a store to the proof: load it, hurt it, and judge what became of every job.

    Each experiment works in a new file, or in a new schema or namespace of the server that --store names, and removes it in the
    end. It writes result.json and plot.svg into a folder of its own in --out. Exit code 1 when what it checks did not hold.
    """
    end_in_order()


def _pairs(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Settings:
    found = {}
    for pair in given:
        name, value = pair.partition("=")[::2]
        try:
            found[name] = float(value)
        except ValueError:
            raise click.BadParameter(f"{pair!r} is not NAME=NUMBER, such as jobs=100000", param=parameter) from None
    return found


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option(
            "--set", "settings", metavar="NAME=NUMBER", multiple=True, callback=_pairs, help="Another rate, number or time."
        ),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path("lab"),
            show_default=True,
            help="Where results go.",
        ),
        click.option("--quick", is_flag=True, help="Seconds instead of minutes: shows that it works, not what it bears."),
        click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same load and faults."),
        click.option(
            "--store",
            metavar="URL",
            help="sqlite, postgres, redis or 'redis?lanes=streams' (all new, removed in the end), postgresql://… or redis://…"
            " [default: sqlite]",
        ),
    ):
        command = option(command)
    return command


class _Experiment(click.Command):
    """Says what can be set. The experiment itself is imported only when it is run."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        assert self.name is not None
        with formatter.section("Numbers to set"):
            formatter.write_dl(
                [
                    (name, f"{number.about} [default: {number.full:,g}; quick: {number.quick:,g}]")
                    for name, number in numbers_of(self.name).items()
                ]
            )


def _experiment(name: str, told: str) -> click.Command:
    @click.command(name, cls=_Experiment, help=told, short_help=told)
    @_options
    def command(store: str | None, seed: int, quick: bool, out: Path, settings: Settings, as_json: bool) -> None:
        with progress() as shown:
            result = run(name, store, out, seed=seed, quick=quick, given=settings, show=shown)
        if as_json:
            show.document(msgspec.to_builtins(result))
        else:
            _tell(result)
        if result.broken:
            sys.exit(1)

    return command


def _tell(result: Result) -> None:
    click.echo(f"{result.experiment} on {result.store}: {result.verdict} ({result.seconds:g} s)")
    click.echo(result.text)
    for line in result.broken:
        click.echo(f"  broken: {line}")


for _name, _told in EXPERIMENTS.items():
    lab.add_command(_experiment(_name, _told))


@lab.command("all")
@_options
def everything(store: str | None, seed: int, quick: bool, out: Path, settings: Settings, as_json: bool) -> None:
    """Every experiment, one after the other, and the report. Those that a store cannot take are named."""
    known = {name: numbers_of(name).keys() for name in EXPERIMENTS}
    for unknown in settings.keys() - set().union(*known.values()):
        raise ConfigError(f"--set {unknown}: no experiment has such a number")
    results = []
    for name in EXPERIMENTS:
        if reason := left_out(name, store, settings):
            click.echo(f"{name}: left out; {reason}", err=True)
            continue
        with progress() as shown:
            given = {each: value for each, value in settings.items() if each in known[name]}
            results.append(run(name, store, out, seed=seed, quick=quick, given=given, show=shown))
        if not as_json:
            _tell(results[-1])
    if as_json:
        show.document(msgspec.to_builtins(results))
    click.echo(str(page.write(out)), err=as_json)
    if any(result.broken for result in results):
        sys.exit(1)


@lab.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(folder: Path) -> None:
    """Make one page, report.html, out of all results below FOLDER."""
    click.echo(str(page.write(folder)))


@lab.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="How many jobs.")
def gen(seed: int, count: int) -> None:
    """Print the load of the experiments, a job per line: the same for the same seed."""
    for job in LoadPlan(seed, WITH_LONG).take(count):
        click.echo(f'{{"task":"{job.task}","payload":{job.body.decode()}}}')
