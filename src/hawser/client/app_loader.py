"""From a name to an app and back: how a command line, a child process and an isolate find the same app."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hawser.errors import ConfigError, HawserError

if TYPE_CHECKING:
    from types import ModuleType

    from hawser.app import Hawser

_OURS: Final = str(Path(__file__).parents[1])


def find_app(spec: str) -> Hawser:
    """The same as `load_app`; what keeps it from being found is a `ConfigError` that says where in the app's own code."""
    try:
        return load_app(spec)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"app: {spec!r} imports the module {error.name!r}, which is not installed for {sys.executable}; "
            "install it, or run hawser from the app's own environment"
        ) from error
    except HawserError as error:
        raise ConfigError(f"{error}{_place(error)}") from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}{_place(error)}"
        raise ConfigError(f"app: importing {spec!r} failed: {text}; --debug shows the traceback") from error


def _place(error: BaseException) -> str:
    """Where in the app's own code it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", _OURS))]
    return f", at {own[-1].filename}:{own[-1].lineno}" if own else ""


def load_app(spec: str) -> Hawser:
    """The app that `module:attribute`, `path/to/file.py:attribute`, or either without the attribute, names.

    Without the attribute the module must hold exactly one app. The working directory is searched for modules.
    """
    from hawser.app import Hawser  # noqa: PLC0415  # the app itself needs this module to say where it lives

    where, _, attribute = spec.rpartition(":") if ":" in spec else (spec, "", "")
    module = _module(where)
    apps = {name: value for name, value in vars(module).items() if isinstance(value, Hawser)}
    if attribute:
        found = getattr(module, attribute, None)
        if isinstance(found, Hawser):
            return found
        known = f"it has {', '.join(apps)}" if apps else "it has none: make one with app = Hawser(…)"
        what = "has no attribute" if found is None else "has no Hawser called"
        raise ConfigError(f"app: {where!r} {what} {attribute!r}; {known}")
    if len({id(app) for app in apps.values()}) != 1:
        hint = (
            f"it has {', '.join(apps)}: name one, as in {where}:{next(iter(apps))}" if apps else "make one with app = Hawser(…)"
        )
        raise ConfigError(f"app: {where!r} does not hold exactly one Hawser; {hint}")
    return next(iter(apps.values()))


def spec_of(app: Hawser) -> str | None:
    """A name under which `load_app` finds this app again in another process; None when no module holds it."""
    for name, module in list(sys.modules.items()):
        for attribute, value in list(vars(module).items()) if module is not None else ():
            if value is app and attribute.isidentifier():
                file = getattr(module, "__file__", None)
                if name == "__main__":
                    return f"{file}:{attribute}" if file else None
                return f"{name}:{attribute}"
    return None


def _module(where: str) -> ModuleType:
    if where.endswith(".py"):
        return _file(Path(where))
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not (where == error.name or where.startswith(f"{error.name}.")):
            raise
        raise ConfigError(
            f"app: no module {error.name!r} to be found from {Path.cwd()}; use module:attribute or path/to/file.py:attribute"
        ) from error


def _file(path: Path) -> ModuleType:
    """The module of a file, under the name by which its own package and siblings import it: otherwise there would be two."""
    if not path.is_file():
        raise ConfigError(f"app: there is no file {str(path)!r}")
    path = path.resolve()
    root, name = path.parent, path.stem
    while (root / "__init__.py").is_file():
        root, name = root.parent, f"{root.name}.{name}"
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    module = importlib.import_module(name.removesuffix(".__init__"))
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise ConfigError(f"app: {str(path)!r} cannot be imported, {name!r} is another module ({found}); rename the file")
    return module
