from __future__ import annotations

import math

from jinja2 import Environment, PackageLoader

from domainbert.base.layout import width
from domainbert.base.table import Number, Table, number_cell, score_cell

SCORES = Table(
    ["system", "F1", "seeds", "note"],
    [["a|b", score_cell(0.8, interval=[0.75, 0.85]), number_cell(3), "<b>\x1b"], ["c", score_cell(None), "", ""]],
    "test <1>",
    [("", 1), ("both", 2), ("", 1)],
)


def html(table: Table) -> str:
    """The table as a page shows it."""
    environment = Environment(loader=PackageLoader("domainbert.report"), autoescape=True)
    return environment.from_string("{% from 'macros.html' import table %}{{ table(content) }}").render(content=table)


def test_cells_of_numbers() -> None:
    assert number_cell(12_345) == Number("12,345", 12_345)
    assert number_cell(0.256, "{:.1f} %", factor=100) == Number("25.6 %", 0.256)
    assert number_cell(None) == ""
    assert score_cell(0.256, False, sign="+") == Number("+0.2560", 0.256)
    assert score_cell(None) == Number("undefined", -math.inf)
    assert str(score_cell(0.5, interval=[0.25, 0.75])) == "50.00 [25.00, 75.00]"


def test_terminal_aligns_numbers_right_and_escapes_control_characters() -> None:
    assert SCORES.lines() == [
        "system    both F1   95 % interval  both seeds  note",
        r"a|b         80.00  [75.00, 85.00]           3  <b>\x1b",
        "c       undefined",
    ]


def test_terminal_aligns_wide_and_combining_characters() -> None:
    rows = [["東京", "B-x"], ["e\u0301t\u0301", "O"], ["🍰", ""], ["longest", "B-y"]]
    lines = Table(["piece", "label"], rows).lines()
    assert lines == ["piece    label", "東京     B-x", "e\u0301t\u0301       O", "🍰", "longest  B-y"]
    assert {width(line[: line.rindex(" ")]) for line in lines if " " in line} == {8}


def test_markdown_is_escaped() -> None:
    rows = [["a|b\nc", "[x](y)"], ["*", "<i>"]]
    assert Table(["key", ""], rows).markdown().split("\n") == [
        "| key |  |",
        "|---|---|",
        r"| a\|b c | [x]\(y) |",
        r"| \* | &lt;i> |",
    ]


def test_html_is_escaped_and_has_values_for_sorting() -> None:
    page = html(SCORES)
    assert "<caption>test &lt;1&gt;</caption>" in page
    assert '<th scope="colgroup" colspan="2">both</th><td colspan="1"></td></tr>' in page
    assert '<th scope="col" class="n">F1 [95&nbsp;%]</th><th scope="col" class="n">seeds</th>' in page
    assert '<th scope="row">a|b</th><td class="n" data-value="0.8">80.00 [75.00, 85.00]</td>' in page
    assert "&lt;b&gt;" in page and "<b>" not in page


def test_html_has_the_first_rows_of_a_long_table() -> None:
    page = html(Table(["row"], [[str(number)] for number in range(1_001)], "all"))
    assert "<caption>all; the first 300 of 1,001 rows</caption>" in page
    assert page.count('<th scope="row">') == 300
