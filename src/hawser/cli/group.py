"""Groups of commands: loaded late, with a default, and with one place where errors become words and exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from hawser.cli import end_at_once
from hawser.cli.format import clean
from hawser.config import strays, unknown_variable
from hawser.errors import ConfigError, HawserError, did_you_mean

FAILED: Final = 1
BAD_USAGE: Final = 2
INTERRUPTED: Final = 130
PIPE_BROKEN: Final = 141
"""What a shell reports of a program that SIGPIPE ended: the reader, such as `head`, had enough."""


class Lazy(NamedTuple):
    """A command that is not imported yet."""

    where: str
    """module:attribute"""
    help: str
    """The first sentence of its own help, so that the list of commands needs no import."""


class CommandFailed(click.ClickException):
    """What went wrong, in one line on stderr."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {clean(self.message)}", file=file or sys.stderr)


class Misused(CommandFailed):
    """An option, a name or an address that cannot be right."""

    exit_code = BAD_USAGE


class Command(click.Command):
    """A command whose options may stand in the environment; a variable that no option has is refused."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        prefix = f"{ctx.auto_envvar_prefix}_"
        names = [option.name for option in self.params if isinstance(option, click.Option) and option.name]
        for variable in [] if ctx.resilient_parsing else strays(prefix, names):
            raise unknown_variable(variable, prefix, names)
        return super().parse_args(ctx, args)


class CommandGroup(click.Group):
    """A group that guesses what was meant."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing:
            ctx.fail(_unknown(args[0], known))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's shape
        """In the order of the code: what is asked for most comes first."""
        return list(self.commands)


class Listing(CommandGroup):
    """A group that lists when no subcommand is named: `hawser jobs --json` is `hawser jobs ls --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_help = bool(args) and args[0] in ctx.help_option_names
        completes = ctx.resilient_parsing and not args  # the shell asks for the subcommands
        if not asks_help and not completes and (not args or args[0].startswith("-")):
            args = ["ls", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-") and (listing := self.get_command(ctx, "ls")) is not None:
            return listing.shell_complete(click.Context(listing, parent=ctx, info_name="ls"), incomplete)
        return super().shell_complete(ctx, incomplete)


class Root(CommandGroup):
    """The program itself."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's shape
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's shape
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return None
        module, _, attribute = lazy.where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's shape
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self._lazy.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for text in args:
            try:
                text.encode()
            except UnicodeEncodeError:
                ctx.fail(f"{clean(text)} is not valid UTF-8; write it in the encoding of your locale")
        before_dashes = args[: args.index("--")] if "--" in args else args
        if "--debug" in before_dashes:
            # People add it at the end of the line that went wrong.
            at = args.index("--debug")
            args = ["--debug", *args[:at], *args[at + 1 :]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes an exit code and at most one line."""
        quick = signal.getsignal(signal.SIGINT) is end_at_once
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except click.UsageError as error:
            raise _pointed_to_app(error) from None
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort):
            raise click.exceptions.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _silence()
            raise click.exceptions.Exit(PIPE_BROKEN) from None
        except OSError as error:
            raise refused(error) or self._fault(ctx, error) from error
        except HawserError as error:
            self._trace(ctx)
            raise (Misused if isinstance(error, ConfigError) else CommandFailed)(str(error)) from error
        except Exception as error:
            raise self._fault(ctx, error) from error
        finally:
            if quick:
                signal.signal(signal.SIGINT, end_at_once)
        return result

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        found = super().resolve_command(ctx, args)
        if signal.getsignal(signal.SIGINT) is end_at_once:
            # The command is imported and begins: from here on it may have something to clean up.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found

    def _fault(self, ctx: click.Context, error: Exception) -> CommandFailed:
        self._trace(ctx)
        return CommandFailed(
            f"{type(error).__name__}: {error}; this is a fault of Hawser: run it again with --debug and report it"
        )

    def _trace(self, ctx: click.Context) -> None:
        if ctx.params.get("debug"):
            traceback.print_exc()


def _unknown(name: str, known: Iterable[str]) -> str:
    if _APP.fullmatch(name):
        return f"no command is called {clean(name)!r}; an app is named by an option: --app {clean(name)}"
    return f"no command is called {clean(name)!r}; {did_you_mean(name, known)}"


_APP: Final = re.compile(r"[\w./-]+:\w+")
"""module:attribute or file.py:attribute"""


def _pointed_to_app(error: click.UsageError) -> click.UsageError:
    """`hawser worker` takes an app as its argument, so people name it to other commands in the same way."""
    options = [] if error.ctx is None else [name for param in error.ctx.command.params for name in param.opts]
    stray = re.search(r"unexpected extra argument \((\S+)\)", error.message)
    if stray and "--app" in options and _APP.fullmatch(stray[1]):
        return click.UsageError(f"{error.message}; an app is named by an option: --app {stray[1]}", error.ctx)
    return error


def refused(error: OSError) -> CommandFailed | None:
    """The words for what the machine does not let us write; None when it is no such thing, and ours to mend."""
    if error.errno not in _WRITE_REFUSED:
        return None
    what = "the output"
    if error.filename is None:
        _silence()
    else:
        what = repr(str(error.filename))
    return CommandFailed(f"{what} cannot be written: {error.strerror}; make room, or name another place")


_WRITE_REFUSED: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)


def _silence() -> None:
    """The output is not read: let the interpreter's own flush at exit go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
