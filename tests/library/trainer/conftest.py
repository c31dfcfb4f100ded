"""The folders that a Trainer reads, for all tests here."""

from __future__ import annotations

import pytest

from tests.library.trainer.tiny_library import Tiny, make_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """All folders, made once."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))
