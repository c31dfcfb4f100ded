"""The page of one text: values and maps are those of the model, texts stay texts, and what is lacking is said."""

from __future__ import annotations

import base64
import html
import re
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from domainbert.base.errors import DomainbertError
from domainbert.report.attending import attend, write_attention_page
from domainbert.serving.attention_maps import attention_maps
from domainbert.serving.attributions import attributions
from tests.encoders.conftest import REFERENCES
from tests.report.test_page import Read
from tests.serving.test_attention_maps import folder_of
from tests.serving.test_attributions import Make, make  # noqa: F401
from tests.tasks.tiny_folders import vocabularies  # noqa: F401

CROOKED = "café loans </script><img src=x onerror=alert(1)> & 中国"


def written(folder: Path, text: str, path: Path) -> tuple[str, list[str]]:
    lacking = write_attention_page(folder, text, path)
    return path.read_text(encoding="utf-8"), lacking


def levels(picture: str) -> np.ndarray:
    """The grey values of a PNG without filters."""
    data = base64.b64decode(picture.removeprefix("data:image/png;base64,"))
    width, height, depth, colours = struct.unpack(">IIBB", data[16:26])
    assert (data[:8], depth, colours) == (b"\x89PNG\r\n\x1a\n", 8, 0)
    (length,) = struct.unpack(">I", data[33:37])
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:]


def test_the_page_has_every_value_and_every_map(make: Make, tmp_path: Path) -> None:  # noqa: F811
    predictor, folder = make("ner", "modernbert", seed=3, domainbert_tags="IOB2"), tmp_path / "ner"
    text, lacking = written(folder, CROOKED, tmp_path / "page.html")
    assert lacking == [] and written(folder, CROOKED, tmp_path / "again.html")[0] == text
    read, found, maps = Read(text), attributions(predictor, CROOKED), attention_maps(predictor, CROOKED)
    pictures = [one for tag, one in read.tags if tag == "img"]
    assert [one["alt"] for one in pictures] == [f"Layer {a}, head {b}" for a in (1, 2) for b in (1, 2)]
    for picture, head in zip(pictures, maps.probabilities.reshape(4, *maps.probabilities.shape[2:]), strict=True):
        shown = ((255 - levels(str(picture["src"])).astype(float)) / 255) ** 2
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
    assert lacking == [] and text.index("Which words made it") < text.index("Where heads look")
    pretrained = folder_of(tmp_path / "pretrained", REFERENCES["bert"]("gelu"))
    text, lacking = written(pretrained, CROOKED, tmp_path / "page.html")
    assert lacking == ["attributions: the model has no head for a task; expected one that finetune wrote"]
    assert lacking[0] in text and text.index("Where heads look") < text.index("Which words made it")
    make("parsing")
    assert "expected one that tags words, or labels a text" in attend(
        [str(tmp_path / "parsing")], CROOKED, str(tmp_path)
    )
    assert (tmp_path / "attention.html").is_file()
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    text, lacking = written(tmp_path / "classification", CROOKED, tmp_path / "page.html")
    assert lacking == ["attributions need captum; pip install 'domainbert[attribution]'"]
    assert text.count("<img ") == 4 and "attributions need captum; pip install" in text


def test_a_page_of_nothing_is_not_written(make: Make, tmp_path: Path) -> None:  # noqa: F811
    make("classification")
    folder, path = str(tmp_path / "classification"), tmp_path / "page.html"
    with pytest.raises(
        DomainbertError, match=r"nothing to show\n  attributions: .* 63 pieces; expected at most 62"
    ) as error:
        attend([folder], ", " * 63, str(path))
    assert "attention: the text has 65 pieces; expected at most 64" in str(error.value)
    with pytest.raises(DomainbertError, match="found an empty text; expected words"):
        attend([folder], " \n", str(path))
    with pytest.raises(DomainbertError, match="found 2 folders; expected one, of a model"):
        attend([folder, folder], CROOKED, str(path))
    assert not path.exists()
