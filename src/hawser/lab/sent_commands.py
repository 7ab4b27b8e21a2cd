"""The commands that clients send to a Redis server: hosted servers bill each, so an idle worker should send few."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import redis

NOT_MONITORED: Final = ("config|get", "client|list", "acl|whoami")
"""What MONITOR does not show, as it is for administrators; scripts do not call these."""


class SentCommands:
    """Watches a server from `start` to `stop`. What scripts call is not counted: it is not sent."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._monitor: Any = client.monitor()  # type: ignore[no-untyped-call]
        self._hidden: Counter[str] = Counter()

    def start(self) -> Self:
        self._hidden = self._hidden_so_far()
        self._monitor.__enter__()
        return self

    def stop(self) -> Counter[str]:
        """How often each command was sent meanwhile, by its name."""
        mark, sent = secrets.token_hex(16), Counter[str]()
        self._client.echo(mark)
        while True:
            seen: Any = self._monitor.next_command()
            if mark in seen["command"]:
                break
            if seen["client_type"] != "lua":
                sent[seen["command"].partition(" ")[0].lower()] += 1
        self._monitor.__exit__(None, None, None)
        return sent + self._hidden_so_far() - self._hidden

    def _hidden_so_far(self) -> Counter[str]:
        found: Any = self._client.info("commandstats")
        return Counter({name: found[f"cmdstat_{name}"]["calls"] for name in NOT_MONITORED if f"cmdstat_{name}" in found})
