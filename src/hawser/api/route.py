"""One row of the table of routes, and finding the row that a request means."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.inspect import IntType, StructType, type_info

from hawser.api.call import Answer, Call, NoBody, NoQuery, Stream, Text
from hawser.store.api_key import Role

Handler = Callable[[Call[Any, Any]], Awaitable[Answer | Text | Stream]]

READERS: Final = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
ACTS: Final = frozenset({Role.OPERATOR, Role.ADMIN})
DEFINES: Final = frozenset({Role.ADMIN})
ENQUEUES: Final = frozenset({Role.PRODUCER, Role.OPERATOR, Role.ADMIN})
WORKS: Final = frozenset({Role.WORKER, Role.ADMIN})
ANY_ROLE: Final = frozenset(Role)
"""Any key."""

NO_KEY: Final[frozenset[Role]] = frozenset()
"""No key is asked for."""


Effect = Literal["acts", "reads"]
"""What a call does beyond what its method says.

`acts` is an operator's action, which leaves an audit record. `reads` changes no job and no setting, whatever the method.
"""


class Takes:
    """What a request may bring."""

    def __init__(
        self,
        body: type[msgspec.Struct] = NoBody,
        *,
        query: type[msgspec.Struct] = NoQuery,
        large: bool = False,
        repeats: bool = False,
        waits: bool = False,
    ) -> None:
        self.body = body
        self.query = query
        self.large = large
        """The body may be as large as a batch."""
        self.repeats = repeats
        """The header Idempotency-Key is heard."""
        self.waits = waits
        """The caller may wait long, and the handler wants to know when it hangs up."""
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(body).decode
        self.has_body = body is not NoBody
        self.has_query = query is not NoQuery
        self.numbers = frozenset(field.name for field in _shape(query).fields if isinstance(field.type, IntType))
        """Parameters of the query that are whole numbers; all others are texts."""


def _shape(kind: type[msgspec.Struct]) -> StructType:
    shape = type_info(kind)
    assert isinstance(shape, StructType)
    return shape


NO_INPUT: Final = Takes()


class Route:
    """What may be asked: by whom, with what, answered by what."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        roles: frozenset[Role],
        answers: Mapping[int, Any],
        takes: Takes = NO_INPUT,
        *,
        effect: Effect | None = None,
        media_type: str = "application/json",
    ) -> None:
        self.method = method
        self.path = path
        self.handler = handler
        self.roles = roles
        self.answers = answers
        """Types of the answers by status, those of errors apart; several in a tuple."""
        self.takes = takes
        self.media_type = media_type
        """Of the answers."""
        self.acts = effect == "acts"
        self.reads = effect == "reads" or method == "GET" or (roles is READERS and not self.acts)
        """A rule may be tried out by POST. A read-only server takes it."""
        self.summary = (handler.__doc__ or "").strip().partition("\n")[0]
        self.parameters = re.findall(r"{(\w+)}", path)

    @property
    def name(self) -> str:
        """`GET /jobs/{id}`."""
        return f"{self.method} {self.path}"

    def __repr__(self) -> str:
        return f"<Route {self.name}>"


class RouteMatch(NamedTuple):
    """A route and what the path says."""

    route: Route
    path: Mapping[str, str]


class Table:
    """Finds routes by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._plain: dict[tuple[str, str], RouteMatch] = {}
        self._paths: set[str] = set()
        """Paths without parameters: `/jobs/batch` is never the job whose id is batch."""
        self._shaped: list[tuple[re.Pattern[str], Route]] = []
        for route in self.routes:
            if route.parameters:
                shape = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", re.sub(r"[.\-]", r"\\\g<0>", route.path))
                self._shaped.append((re.compile(shape), route))
            else:
                self._plain[route.method, route.path] = RouteMatch(route, {})
                self._paths.add(route.path)

    def find(self, method: str, path: str) -> RouteMatch | None:
        found = self._plain.get((method, path))
        if found is not None or path in self._paths:
            return found
        for shape, route in self._shaped:
            if route.method == method and (matched := shape.fullmatch(path)):
                return RouteMatch(route, matched.groupdict())
        return None

    def methods(self, path: str) -> list[str]:
        """What may be asked of this path; empty when the path is unknown."""
        if path in self._paths:
            return sorted(method for method, known in self._plain if known == path)
        return sorted({route.method for shape, route in self._shaped if shape.fullmatch(path)})
