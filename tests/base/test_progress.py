from __future__ import annotations

import io

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_no_line_of_progress_stands_before_an_error(stream: io.StringIO) -> None:
    """A live progress line is cleared first, so that the error begins on a new line."""
    clock = iter(range(100))
    with (
        pytest.raises(DomainbertError),
        Progress("evaluate", 2, "models", stream, clock=lambda: next(clock)) as progress,
    ):
        if stream.isatty():
            progress.advance()
        raise DomainbertError("models: wrong")
    assert stream.getvalue().rpartition("\r\x1b[K")[2] == ""


def test_the_closing_line_is_printed_otherwise() -> None:
    stream = io.StringIO()
    with Progress("prepare", 2, "texts", stream, clock=iter([0.0, 1.0, 2.0]).__next__) as progress:
        progress.advance(2)
    assert stream.getvalue() == "prepare: 2/2 (100 %) texts, 1.00 texts/s, 2s\n"
