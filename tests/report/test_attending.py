"""The page of one text: it shows the attention maps of the model, and texts are escaped."""

from __future__ import annotations

import base64
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from domainbert import cli
from domainbert.base.errors import DomainbertError
from domainbert.report import attention_page
from domainbert.report.attention_page import write_attention_report
from domainbert.serving.attention_maps import attention_maps
from tests.encoders.conftest import REFERENCES
from tests.refusals import command_refused
from tests.serving.test_attention_maps import folder_of

CROOKED = "café loans </script><img src=x onerror=alert(1)> & 中国"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    monkeypatch.chdir(tmp_path)
    return folder_of(Path("model"), REFERENCES["modernbert"]("gelu"))


def written(folder: Path, text: str, path: str = "page.html") -> str:
    assert write_attention_report([str(folder)], text, path) == f"report: {path}"
    return Path(path).read_text(encoding="utf-8")


def levels(picture: str) -> np.ndarray:
    """The grey values of a PNG."""
    image = Image.open(io.BytesIO(base64.b64decode(picture.removeprefix("data:image/png;base64,"))))
    assert (image.format, image.mode) == ("PNG", "L")
    return np.asarray(image)


def test_the_page_has_every_map(model: Path) -> None:
    text = written(model, CROOKED)
    assert written(model, CROOKED, "again.html") == text
    maps = attention_maps(model, CROOKED)
    pictures = re.findall(r'<img src="(\S+)" width="\d+" height="\d+" alt="(.+?)">', text)
    assert text.count("<img") == 9 and "; img-src data:; " in text
    assert [name for _, name in pictures] == [f"Layer {a}, head {b}" for a in (1, 2, 3) for b in (1, 2, 3)]
    for (picture, _), head in zip(pictures, maps.probabilities.reshape(9, *maps.probabilities.shape[2:]), strict=True):
        shown = ((255 - levels(picture).astype(float)) / 255) ** 2
        np.testing.assert_allclose(shown, head, atol=1 / 255)
    assert len(re.findall(r"→ .*? <b>\d\.\d\d</b>", text)) == 9 * 5


def test_a_page_of_nothing_is_not_written(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attention_page.MAX_PIECES == 64
    monkeypatch.setattr(attention_page, "MAX_PIECES", 20)
    for folders, text, message in [
        (["model"], ", " * 19, "attention maps: the text has 21 tokens; expected at most 20"),
        (["model"], " \n", "found an empty text; expected a text"),
        (["model", "model"], CROOKED, "found 2 folders; expected one model folder"),
    ]:
        with pytest.raises(DomainbertError, match=message):
            write_attention_report(folders, text, "page.html")
    assert not Path("page.html").exists()


def test_the_command_writes_the_page_and_says_where(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "model", "--attend", CROOKED]) == 0
    assert capsys.readouterr().out == "report: attention.html\n"
    text = Path("attention.html").read_text(encoding="utf-8")
    assert "<h1>How model reads a text</h1>" in text
    assert cli.main(["report", "model", "--attend", CROOKED, "--out", "new/page.html"]) == 0
    assert Path("new/page.html").read_text(encoding="utf-8") == text
    words = ("report", "elsewhere", "--attend", CROOKED)
    command_refused(*words, file="elsewhere", problem="no config.json", expected="a model folder...")


def test_a_head_that_is_opened_is_drawn_large_in_a_browser(model: Path) -> None:
    """Nothing is refused or requested from the network, and pointing at a place says what the model computed."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install .[browser]")
    browser = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no browser on this machine: looked for chromium and google-chrome")
    written(model, CROOKED)
    said: list[str] = []
    with api.sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto(Path("page.html").absolute().as_uri())
        head = page.locator("details.head").nth(1)
        assert head.locator("svg").count() == 0
        head.locator("summary").click()
        place = head.locator("image").bounding_box()
        maps = attention_maps(model, CROOKED)
        cell = place["width"] / len(maps.pieces)
        head.locator("svg").scroll_into_view_if_needed()
        place = head.locator("image").bounding_box()
        page.mouse.move(place["x"] + 1.5 * cell, place["y"] + 2.5 * cell)
        shown = head.locator("output").inner_text()
    begin, _, value = shown.rpartition(": ")
    assert begin == f"{maps.pieces[2]} \N{RIGHTWARDS ARROW} {maps.pieces[1]}"
    assert float(value) == pytest.approx(maps.probabilities[0, 1, 2, 1], abs=0.01)
    assert said == []
