"""Waiting for a storage that cannot be reached for a while, such as a database that restarts."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS, _AGAIN_SECONDS = 300.0, 2.0


class Patience:
    """Lets a worker repeat its tries for some minutes.

    Args:
        say: called once when the wait begins, and once when the storage is back.
        seconds: the longest wait.
    """

    def __init__(self, say: Callable[[str], None], seconds: float = _SECONDS) -> None:
        self.say, self.seconds = say, seconds
        self._since: float | None = None

    def wait(self, error: Exception) -> None:
        """Wait a little; raise `error`, the one of the lost storage, after too long a wait."""
        if self._since is None:
            self._since = time.monotonic()
            self.say(f"storage: was lost ({reason(error)}); trying again for {self.seconds / 60:.0f} minutes")
        if time.monotonic() - self._since > self.seconds:
            raise error
        time.sleep(_AGAIN_SECONDS)

    def answered(self) -> None:
        """Note that the storage is back."""
        if self._since is not None:
            self.say("storage: is there again")
        self._since = None


def reason(error: Exception) -> str:
    """The reason why a storage is lost, in one line."""
    return str(error.__cause__ or error).strip().partition("\n")[0]
