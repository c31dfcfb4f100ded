"""Links between README, docs/ and the other pages lead somewhere, and the site has every page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml

import domainbert
from domainbert.runner.stage_table import STAGES

ROOT = Path(__file__).parents[1]
DOCS = sorted(ROOT.glob("docs/**/*.md"))
GENERATED = [ROOT / "docs/reference/stages.md", ROOT / "docs/reference/api.md"]  # by docs/stage_pages.py
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "benchmarks/README.md", *DOCS]


def without_code(page: Path) -> str:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].strip("`").replace("]", ""), text)


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and MkDocs both write them, and those that a page names."""
    text = without_code(page)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = re.findall(r'^<a id="([\w-]+)"></a>$', text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | {*named}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_code(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        if re.match(r"\w+://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), link
        is_picture = target.suffix in (".png", ".svg")
        assert page not in DOCS or target in DOCS or is_picture, f"{link}: is no page of the site"
        assert not anchor or anchor in anchors(target), link


def test_there_are_links():
    assert len(links(ROOT / "README.md")) > 20 and sum(len(links(page)) for page in DOCS) > 30


def listed(nav: list) -> list[str]:
    """The pages that a table of contents names, at any depth."""
    values = [value for item in nav for value in (item.values() if isinstance(item, dict) else [item])]
    return [name for value in values for name in (listed(value) if isinstance(value, list) else [value])]


def test_every_page_is_in_the_site_and_linked_to():
    names = {str(page.relative_to(ROOT / "docs")) for page in DOCS}
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(listed(nav)) == sorted({*names, *(str(page.relative_to(ROOT / "docs")) for page in GENERATED)})
    assert names - {link.partition("#")[0] for link in links(ROOT / "docs/index.md")} == {"index.md"}


def test_pages_are_short_and_say_what_to_read_next():
    """Reference pages, results and the page for programmers may be longer; the home page is a list of links."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100
    for page in DOCS:
        text = page.read_text(encoding="utf-8")
        if page.parent.name in ("tutorials", "how-to", "explanation") or page.name == "extending.md":
            assert len(text.splitlines()) <= 200, page
        if page.name != "index.md":
            assert "\n**Next:** " in text, page


def test_the_page_of_all_settings_has_every_command():
    hook = runpy.run_path(str(ROOT / "docs/stage_pages.py"))
    page = hook["stages_page"]()
    commands = ["run", "demo", "init", "tune", "runs", "report", "push"]
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == [*STAGES, *commands]
    assert page.count("  --out FOLDER ") == len(STAGES) + 3


def test_the_page_of_public_names_has_every_name():
    page = runpy.run_path(str(ROOT / "docs/stage_pages.py"))["api_page"]()
    names = re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)
    assert sorted(name.rpartition(".")[2] for name in names) == sorted({*domainbert.__all__} - {"__version__"})
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == sorted({name.split(".")[1] for name in names})
