"""Tests of errors assert facts, so that sentences can be rewritten; `tests/test_messages.py` has some sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from domainbert.base.errors import DomainbertError


def has_facts(error: DomainbertError, **facts: object) -> bool:
    """Whether an error has these facts: `where` may be the end of a longer key, `file` of a longer path; a text that
    ends in "..." is the beginning of a fact."""
    for name, wanted in facts.items():
        value, text = getattr(error, name), str(wanted)
        ends = {"where": (f".{text}", f": {text}"), "file": (f"/{text}",)}.get(name, ())
        if text.endswith("..."):
            matches = str(value).startswith(text.removesuffix("..."))
        else:
            matches = str(value) == text or str(value).endswith(ends or "\0")
        if not matches:
            return False
    return True


@contextmanager
def refused(**facts: object) -> Iterator[pytest.ExceptionInfo[DomainbertError]]:
    """Expect a `DomainbertError` that has these facts, or one of whose several errors has them."""
    with pytest.raises(DomainbertError) as caught:
        yield caught
    found = [error.facts() for error in caught.value.errors]
    assert any(has_facts(error, **facts) for error in caught.value.errors), f"expected {facts}; found {found}"
