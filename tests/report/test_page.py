"""A page of any sections: escaped, allowed by its own policy, and the same bytes twice."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from domainbert.report.page import Section, page_text
from tests.report.reading import Read

CROOKED = "</script><img src=x onerror=alert(1)> & é"


def says(*sentences: str, title: str = "Verdict") -> Section:
    verdict = [{"title": "", "sentences": sentences, "table": None}]
    return Section(title, "verdict.html", {"verdicts": verdict, "troubles": [], "runs": ""})


def test_texts_stay_texts_wherever_they_stand() -> None:
    read = Read(page_text(CROOKED, [says(CROOKED, title=CROOKED)]))
    assert [tag for tag, _ in read.tags if tag in ("img", "script")] == ["script"]
    for tag in ("title", "h1", "h2", "p"):
        assert CROOKED in read.within(tag), tag


def test_the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else() -> None:
    text = page_text("One", [says("a"), Section("More", "pictures.html", {"caption": "", "pictures": []})])
    read = Read(text)
    (policy,) = [found["content"] for tag, found in read.tags if found.get("http-equiv")]
    inside = {tag: text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in ("style", "script")}
    hashes = {tag: base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for tag, one in inside.items()}
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"https?://|@import|url\(", inside["style"] + inside["script"])
    assert ".verdict" in inside["style"] and ".mistakes" not in inside["style"], "the styles of its templates alone"


def test_the_contents_lead_to_every_section_and_pages_are_the_same_twice() -> None:
    sections = [says("a", title="Where it goes wrong"), says("b", title="Détails")]
    text = page_text("One", sections)
    assert text == page_text("One", sections)
    read = Read(text)
    links = [found["href"] for tag, found in read.tags if tag == "a"]
    ids = [found["id"] for _, found in read.tags if found.get("id")]
    assert links == ["#content", "#where-it-goes-wrong", "#détails"]
    assert {str(link)[1:] for link in links} <= set(ids) and len(ids) == len(set(ids))
    with pytest.raises(ValueError, match="section titles must be different"):
        page_text("One", [sections[0], sections[0]])
