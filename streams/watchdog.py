"""The watchdog's eye: what is a standstill, and what is only waiting."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from streams.progress import Progress


@dataclass(slots=True)
class _Unread:
    """A stage that has lag and nothing in hand: how far it was when that began."""

    handled: int
    since: float


class Standstill:
    """Remembers from look to look. `monotonic` is in seconds.

    A stage stands still that has had the same work in hand for `limit` seconds without being told to wait by a server, or
    for which messages have waited that long while it took none, or that was given partitions and has not looked at one of
    them for that long. With no lag, or with a server that says "not now", nothing is wrong that a new process would mend.
    """

    def __init__(self, limit: float, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._unread: dict[str, _Unread] = {}
        self._unseen: dict[str, float] = {}

    def look(
        self,
        progress: Mapping[str, Progress],
        lags: Iterable[tuple[str, str, int, int]],
        waiting: Collection[str] = (),
        unseen: Collection[str] = (),
    ) -> dict[str, str]:
        """Stage to what is wrong with it, in a sentence for the log.

        `waiting` are the stages that a server told to wait, `unseen` those with a partition that was never read from: nobody
        knows how much lies there.
        """
        now = self._monotonic()
        behind: dict[str, int] = {}
        for stage, _topic, _partition, messages in lags:
            behind[stage] = behind.get(stage, 0) + messages
        found = self._never_read(unseen, waiting, now)
        for stage in {*progress, *behind}:
            state = progress.get(stage, Progress())
            if state.busy_since is not None:
                self._unread.pop(stage, None)
                if now - state.busy_since > self._limit:
                    found[stage] = f"no progress for {now - state.busy_since:.0f} s with work in hand"
                continue
            seen = self._unread.get(stage)
            if not behind.get(stage) or stage in waiting:
                self._unread.pop(stage, None)
            elif seen is None or seen.handled != state.handled:
                self._unread[stage] = _Unread(state.handled, now)
            elif now - seen.since > self._limit:
                found[stage] = f"{behind[stage]} messages have waited for {now - seen.since:.0f} s and none was taken"
        return found

    def _never_read(self, unseen: Collection[str], waiting: Collection[str], now: float) -> dict[str, str]:
        self._unseen = {stage: self._unseen.get(stage, now) for stage in unseen if stage not in waiting}
        return {
            stage: f"a partition was assigned {now - since:.0f} s ago and never read from"
            for stage, since in self._unseen.items()
            if now - since > self._limit
        }
