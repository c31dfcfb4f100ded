from __future__ import annotations

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.settings.command_line import parse_arguments


def test_arguments_are_taken_apart() -> None:
    words = ["recipe.yaml", "-c", "a.yaml", "--x.lr", "1e-4", "--config", "b.yaml", "--y=-1", "--z", "-1"]
    words += ["--dry-run", "--force", "--only", "a,b"]
    typed = parse_arguments(words, {"dry_run": "none", "force": "optional", "only": "one"})
    assert typed.words == ["recipe.yaml"]
    assert typed.files == ["a.yaml", "b.yaml"]
    assert typed.options == [("x.lr", "1e-4"), ("y", "-1"), ("z", "-1")]
    assert typed.flags == {"dry_run": None, "force": None, "only": "a,b"}
    assert parse_arguments(["--force", "a", "--e.help", "B"], {"force": "optional"}).flags == {"force": "a"}
    assert parse_arguments(["--e.help", "B"], {}).help_of == ("e", "B")


@pytest.mark.parametrize("words", [["--x"], ["--x", "--y", "1"], ["-c"], ["--dry-run=yes"]])
def test_an_option_without_its_value(words: list[str]) -> None:
    with pytest.raises(DomainbertError) as caught:
        parse_arguments(words, {"dry_run": "none"})
    message = f"{caught.value.problem} {caught.value.expected}"
    assert "a value" in message or "no value" in message
