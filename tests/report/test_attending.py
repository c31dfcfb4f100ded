"""The page of one text: values and maps are those of the model, texts stay texts, and what is lacking is said."""

from __future__ import annotations

import base64
import html
import io
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from domainbert import cli
from domainbert.base.errors import DomainbertError
from domainbert.report.attention_page import write_attention_page, write_attention_report
from domainbert.serving.attention_maps import attention_maps
from domainbert.serving.attributions import attributions
from tests.encoders.conftest import REFERENCES
from tests.serving.test_attention_maps import folder_of
from tests.serving.test_attributions import Make, make  # noqa: F401
from tests.tasks.tiny_folders import vocabularies  # noqa: F401

CROOKED = "café loans </script><img src=x onerror=alert(1)> & 中国"


def written(folder: Path, text: str, path: Path) -> tuple[str, list[str]]:
    lacking = write_attention_page(folder, text, path)
    return path.read_text(encoding="utf-8"), lacking


def levels(picture: str) -> np.ndarray:
    """The grey values of a PNG."""
    image = Image.open(io.BytesIO(base64.b64decode(picture.removeprefix("data:image/png;base64,"))))
    assert (image.format, image.mode) == ("PNG", "L")
    return np.asarray(image)


def test_the_page_has_every_value_and_every_map(make: Make, tmp_path: Path) -> None:  # noqa: F811
    predictor, folder = make("ner", "modernbert", seed=3, domainbert_tags="IOB2"), tmp_path / "ner"
    text, lacking = written(folder, CROOKED, tmp_path / "page.html")
    assert lacking == [] and written(folder, CROOKED, tmp_path / "again.html")[0] == text
    found, maps = attributions(predictor, CROOKED), attention_maps(predictor, CROOKED)
    pictures = re.findall(r'<img src="(\S+)" width="\d+" height="\d+" alt="(.+?)">', text)
    assert text.count("<img") == 4 and "; img-src data:; " in text
    assert [name for _, name in pictures] == [f"Layer {a}, head {b}" for a in (1, 2) for b in (1, 2)]
    for (picture, _), head in zip(pictures, maps.probabilities.reshape(4, *maps.probabilities.shape[2:]), strict=True):
        shown = ((255 - levels(picture).astype(float)) / 255) ** 2
        np.testing.assert_allclose(shown, head, atol=1 / 255)
    assert len(re.findall(r"→ .*? <b>\d\.\d\d</b>", text)) == 4 * 5
    shown = re.findall(r'<p class="read">(.*?)</p>', text, re.DOTALL)
    assert len(found) >= 1
    for one, words in zip(found, shown, strict=True):
        largest = max(abs(word.value) for word in one.words)
        tips = [value.replace("\N{MINUS SIGN}", "-") for value in re.findall(r'data-tip="(.*?)"', words)]
        assert list(map(float, tips)) == pytest.approx([word.value for word in one.words], abs=largest / 20)
        assert html.unescape(re.sub(r"<small>.*?</small>|</?span.*?>", "", words)) == CROOKED


def test_what_the_page_lacks_is_said_on_it(
    make: Make,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make("classification")
    text, lacking = written(tmp_path / "classification", ", " * 62, tmp_path / "page.html")
    assert lacking == [] and text.index("Word attributions") < text.index("Attention maps")
    pretrained = folder_of(tmp_path / "pretrained", REFERENCES["bert"]("gelu"))
    text, lacking = written(pretrained, CROOKED, tmp_path / "page.html")
    assert lacking == ["attributions: no trained task head; expected a model that finetune wrote"]
    assert lacking[0] in text and text.index("Attention maps") < text.index("Word attributions")
    make("parsing")
    assert write_attention_report([str(tmp_path / "parsing")], CROOKED, str(tmp_path)).splitlines() == [
        f"warning: {tmp_path / 'attention.html'} has no attributions: the model is for parsing; "
        "expected a model that tags words or labels a text",
        f"report: {tmp_path / 'attention.html'}",
    ]
    assert (tmp_path / "attention.html").is_file()
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    text, lacking = written(tmp_path / "classification", CROOKED, tmp_path / "page.html")
    assert lacking == ["attributions: needs captum; run pip install 'domainbert[attribution]'"]
    assert text.count("<img ") == 4 and "attributions: needs captum; run pip install" in text


def test_a_page_of_nothing_is_not_written(make: Make, tmp_path: Path) -> None:  # noqa: F811
    make("classification")
    folder, path = str(tmp_path / "classification"), tmp_path / "page.html"
    with pytest.raises(
        DomainbertError,
        match=r"no attributions and no attention maps\n  attributions: .* 63 pieces; expected at most 62",
    ) as error:
        write_attention_report([folder], ", " * 63, str(path))
    assert "attention maps: the text has 65 tokens; expected at most 64" in str(error.value)
    with pytest.raises(DomainbertError, match="found an empty text; expected the text to explain"):
        write_attention_report([folder], " \n", str(path))
    with pytest.raises(DomainbertError, match="found 2 folders; expected one model folder"):
        write_attention_report([folder, folder], CROOKED, str(path))
    assert not path.exists()


def test_the_command_writes_the_page_and_says_where(
    make: Make,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make("classification")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", "classification", "--attend", CROOKED]) == 0
    assert capsys.readouterr().out == "report: attention.html\n"
    text = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "<h1>How classification reads a text</h1>" in text
    assert cli.main(["report", "classification", "--attend", CROOKED, "--out", "new/page.html"]) == 0
    assert (tmp_path / "new/page.html").read_text(encoding="utf-8") == text
    assert cli.main(["report", "elsewhere", "--attend", CROOKED]) == 2
    assert "elsewhere: no config.json; expected a model folder" in capsys.readouterr().err


def test_a_head_that_is_opened_is_drawn_large_in_a_browser(make: Make, tmp_path: Path) -> None:  # noqa: F811
    """Nothing is refused or asked of the network, and pointing at a place says what the model computed."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install .[browser]")
    browser = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no browser on this machine: looked for chromium and google-chrome")
    predictor = make("classification")
    write_attention_page(tmp_path / "classification", CROOKED, tmp_path / "page.html")
    said: list[str] = []
    with api.sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto((tmp_path / "page.html").as_uri())
        assert "".join(page.locator(".read > span > span").all_inner_texts()) == CROOKED.replace(" ", "")
        head = page.locator("details.head").nth(1)
        assert head.locator("svg").count() == 0
        head.locator("summary").click()
        place = head.locator("image").bounding_box()
        maps = attention_maps(predictor, CROOKED)
        cell = place["width"] / len(maps.pieces)
        head.locator("svg").scroll_into_view_if_needed()
        place = head.locator("image").bounding_box()
        page.mouse.move(place["x"] + 1.5 * cell, place["y"] + 2.5 * cell)
        told = head.locator("output").inner_text()
    begin, _, value = told.rpartition(": ")
    assert begin == f"{maps.pieces[2]} \N{RIGHTWARDS ARROW} {maps.pieces[1]}"
    assert float(value) == pytest.approx(maps.probabilities[0, 1, 2, 1], abs=0.01)
    assert said == []
