"""A storage that is out of reach for a while: a database that restarts."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS, _AGAIN_SECONDS = 300.0, 2.0


class Patience:
    """Lets a worker try again and again for some minutes.

    Args:
        say: told once that the storage is waited for, and once that it is back.
        seconds: how long.
    """

    def __init__(self, say: Callable[[str], None], seconds: float = _SECONDS) -> None:
        self.say, self.seconds = say, seconds
        self._since: float | None = None

    def wait(self, error: Exception) -> None:
        """Wait a little; raises `error`, which has said that the storage is lost, when it was for too long."""
        if self._since is None:
            self._since = time.monotonic()
            self.say(f"storage: was lost ({reason(error)}); trying again for {self.seconds / 60:.0f} minutes")
        if time.monotonic() - self._since > self.seconds:
            raise error
        time.sleep(_AGAIN_SECONDS)

    def answered(self) -> None:
        """The storage is there."""
        if self._since is not None:
            self.say("storage: is there again")
        self._since = None


def reason(error: Exception) -> str:
    """Why a storage is lost, in one line."""
    return str(error.__cause__ or error).strip().partition("\n")[0]
