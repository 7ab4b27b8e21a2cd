"""The API keys of the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.clock import at, to_us
from hawser.store.api_key import ApiKey, KeyRecord


class _KeptKey:
    """A key and its times, in microseconds."""

    def __init__(self, key: ApiKey, now: int, until: int | None) -> None:
        self.key = key
        self.created_at = now
        self.expires_at = until
        self.revoked_at: int | None = None
        self.used_at: int | None = None

    def record(self, now: int) -> KeyRecord:
        times = {name: getattr(self, name) for name in ("expires_at", "revoked_at", "used_at")}
        return KeyRecord(
            key=self.key,
            created_at=at(self.created_at),
            live=self.revoked_at is None and (self.expires_at is None or self.expires_at > now),
            **{name: None if us is None else at(us) for name, us in times.items()},
        )


class ApiKeys:
    """Keys of the API. They are found by their public part; the store's lock guards it."""

    def __init__(self) -> None:
        self._held: dict[str, _KeptKey] = {}

    def put(self, key: ApiKey, lasts: float | None, now: int) -> bool:
        """False when it was put before."""
        if key.id in self._held:
            return False
        self._held[key.id] = _KeptKey(key, now, None if lasts is None else now + to_us(lasts))
        return True

    def records(self, now: int) -> list[KeyRecord]:
        return [held.record(now) for held in sorted(self._held.values(), key=lambda held: (held.created_at, held.key.id))]

    def revoke(self, id: str, now: int) -> bool:
        held = self._held.get(id)
        if held is None or held.revoked_at is not None:
            return False
        held.revoked_at = now
        return True

    def use(self, ids: Sequence[str], now: int) -> None:
        for id in ids:
            if id in self._held:
                self._held[id].used_at = now
