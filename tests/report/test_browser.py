"""The report in a real browser: nothing is refused or requested from the network, and the script works."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domainbert.report.command import write_report
from tests.report.hand_made import CROOKED, whole_run

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install .[browser]")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser on this machine: looked for {', '.join(NAMES)}")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The opened report of a whole run; `said` has the messages of the browser, `requests` its addresses."""
    write_report([whole_run(tmp_path / "run")], tmp_path / "report.html")
    page = browser.new_page()
    page.said, page.requests = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    page.close()


def test_nothing_is_refused_and_nothing_but_the_file_is_loaded(page: Any, tmp_path: Path) -> None:
    assert page.said == []
    assert page.requests == [(tmp_path / "report.html").as_uri()]
    assert page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
    assert CROOKED in page.locator("#mistakes-1-1").inner_text()
    assert page.evaluate("document.querySelectorAll('[style]').length") <= 1, "the tooltip is placed by the script"
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "wide tables scroll by themselves"


def test_a_filter_hides_what_was_not_asked_for(page: Any) -> None:
    items = page.locator("#mistakes-1-1 > li")
    form = page.locator("form[data-list=mistakes-1-1]")
    assert (items.count(), form.locator("output").inner_text()) == (3, "3 of 3")
    form.locator("select[name=kinds]").select_option("missed")
    assert [items.nth(number).is_visible() for number in range(3)] == [False, True, False]
    assert form.locator("output").inner_text() == "1 of 3"
    form.locator("select[name=labels]").select_option("outcome")
    assert form.locator("output").inner_text() == "0 of 3"
    form.locator("select[name=kinds]").select_option("")
    assert form.locator("output").inner_text() == "2 of 3"


def test_a_click_on_a_head_sorts_and_a_second_one_turns_the_order(page: Any) -> None:
    table = page.locator("#how-it-was-made table.sortable").first
    head = table.locator("thead th").first

    def names() -> list[str]:
        return table.locator("tbody th").all_inner_texts()

    head.locator("button").click()
    assert names() == sorted(names()) and head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert names() == sorted(names(), reverse=True) and head.get_attribute("aria-sort") == "descending"


def test_a_tooltip_appears_over_a_mark_and_goes_again(page: Any) -> None:
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.locator("#mistakes mark").first.hover()
    assert tip.inner_text() == "outcome\nboundary"
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_texts_stand_out_from_the_paper(page: Any) -> None:
    """The contrast of WCAG 2.2, 1.4.3: at least 4.5 for texts."""
    seen, low = page.evaluate((Path(__file__).parent / "contrast.js").read_text(encoding="utf-8"))
    assert seen > 150 and low == []
