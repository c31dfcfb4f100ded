"""The YAML of a model card, as the Hugging Face hub reads it; what others have written in it stays data."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from domainbert.base.table import Table
from domainbert.models.card import (
    CardConfig,
    Result,
    add_results,
    card_head,
    inherited_values,
    join_card,
    model_card,
    read_head,
    split_card,
)
from tests.refusals import refused

HOSTILE = "a\n---\nlicense: mit\n\"'|</td><script>alert(1)</script>`*[x](http://evil) &amp; é\u2028\t{{7*7}} %YAML"


def hub_card(text: str):
    """The card as `huggingface_hub` reads it, scores among it."""
    return ModelCard(text)


def test_the_hub_reads_what_was_said() -> None:
    said = CardConfig("cc-by-4.0", ("en", "no"), ("owner/set",), ("economics",))
    result = Result("Token classifier", "dev.conll", "validation", "f1", "entity F1", 0.83397, [0.8023, 0.83909])
    head = card_head("tagger", "token-classification", said, results=[result])
    card = hub_card(model_card("Tagger", "A tagger.", {"labels": "O"}, "pass", head))
    data = card.data
    assert (data.license, data.language, data.datasets) == ("cc-by-4.0", ["en", "no"], ["owner/set"])
    assert (data.pipeline_tag, data.library_name, data.tags) == (
        "token-classification",
        "transformers",
        ["domainbert", "economics"],
    )
    assert data.base_model is None and data.model_name == "tagger"
    (found,) = data.eval_results
    assert (found.task_type, found.task_name) == ("token-classification", "Token classifier")
    assert (found.dataset_name, found.dataset_type, found.dataset_split) == ("dev.conll", "custom", "validation")
    assert (found.metric_type, found.metric_name, found.metric_value) == ("f1", "entity F1", 0.834)
    assert found.metric_args == {"interval_95": [0.8023, 0.8391]}
    assert card.text.lstrip().startswith("# Tagger\n")


def test_nothing_is_made_up() -> None:
    head = card_head("x", None, results=[Result("t", "d", "validation", "f1", "F1", float("nan"))])
    assert head == {"library_name": "transformers", "tags": ["domainbert"]}
    assert card_head("x", None, library=None, tags=["onnx"]) == {"tags": ["domainbert", "onnx"]}


def test_hostile_texts_stay_data() -> None:
    result = Result(HOSTILE, HOSTILE, "test", "f1", HOSTILE, 0.5)
    head = card_head(HOSTILE, "fill-mask", CardConfig(tags=(HOSTILE,)), results=[result])
    text = model_card("Title", "A model.", {"labels": HOSTILE}, "pass", head)
    read, body = split_card(text)
    one_line = " ".join(HOSTILE.split())
    assert read == {**head, "tags": ["domainbert", one_line], "model-index": read["model-index"]}
    (entry,) = read["model-index"]
    assert (entry["name"], entry["results"][0]["dataset"]["name"]) == (one_line, one_line)
    assert body.startswith("# Title\n") and "license" not in read
    card = hub_card(text)
    assert card.data.license is None and card.data.tags == ["domainbert", one_line]
    assert card.data.eval_results[0].metric_name == one_line
    row = next(line for line in body.splitlines() if line.startswith("| labels"))
    assert row.count("|") - row.count("\\|") == 3 and "<script" not in row and "](" not in row.replace("]\\(", "")
    assert row == Table(["labels", HOSTILE], []).markdown().split("\n")[0]


def test_a_card_takes_over_what_the_card_before_it_says(tmp_path: Path) -> None:
    base = tmp_path / "models--google--some-bert" / "snapshots" / "abc123"
    base.mkdir(parents=True)
    (base / "README.md").write_text("---\nlicense: apache-2.0\nlanguage: en\ntags: [x]\n---\n# Theirs\n")
    head = card_head("mine", "fill-mask", inherited=inherited_values(base))
    assert (head["license"], head["language"], head["base_model"]) == ("apache-2.0", "en", "google/some-bert")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "README.md").write_text(join_card(head, "# Mine\n"))
    again = card_head("tagger", None, CardConfig(license="mit"), inherited=inherited_values(mine))
    assert (again["license"], again["base_model"], again["tags"]) == ("mit", "google/some-bert", ["domainbert"])
    assert "datasets" not in again
    (base / "README.md").write_text("---\nlicense: other\nlicense_name: theirs\nlicense_link: LICENSE\n---\n")
    other = card_head("mine", None, inherited=inherited_values(base))
    assert (other["license"], other["license_name"], other["license_link"]) == ("other", "theirs", "LICENSE")
    assert "license_name" not in card_head("mine", None, CardConfig(license="mit"), inherited=inherited_values(base))


@pytest.mark.parametrize(
    "text",
    [
        "# No head\n",
        "---\nlicense: mit\n",
        "---\n[1, 2]\n---\n",
        "---\nlicense: [mit]\nlanguage: {a: 1}\nbase_model: 7\n---\n",
        "---\n!!python/object/apply:os.system [id]\n---\n",
        "---\nlicense: mit\n" + "x" * 200_000 + "\n---\n",
        "",
    ],
)
def test_a_card_in_another_form_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_text(text)
    assert read_head(tmp_path) == {}
    (tmp_path / "README.md").write_bytes(b"---\nlicense: \xff\n---\n")
    assert read_head(tmp_path) == {} == read_head(tmp_path / "none")


DOUBLED = "".join(f"a{i + 1}: &a{i + 1} {{<<: [*a{i}, *a{i}]}}\n" for i in range(25))
BOMBS = {
    "aliases": "a0: &a0 [x, x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)),
    "merge keys": "a0: &a0 {x: 1}\n" + DOUBLED,
    "a value that contains itself": "license: mit\ntags: &a [*a]\n",
    "depth": "tags: " + "[" * 5000 + "\n",
    "long text": f"tags: [&a {'x' * 50_000}{', *a' * 11}]\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_head_that_expands_without_end_is_refused_with_its_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "README.md").write_text(f"---\n{BOMBS[name]}---\n")
    with refused(file=f"{tmp_path}/README.md", problem="more than..."):
        read_head(tmp_path)


@pytest.mark.parametrize(
    "text", ["---\nlicense: mit\n---", "\n---\nlicense: mit\n--- \n\n# Theirs", "---\r\nlicense: mit\r\n---"]
)
def test_a_head_is_read_wherever_the_hub_reads_it(tmp_path: Path, text: str) -> None:
    """Without a line end after its last line, after empty lines, or with spaces after the last dashes."""
    (tmp_path / "README.md").write_text(text, newline="")
    assert hub_card(text).data.license == "mit"
    assert read_head(tmp_path) == {"license": "mit"}
    assert split_card((tmp_path / "README.md").read_text())[1] == ("# Theirs" if "Theirs" in text else "")


def test_a_head_that_is_kept_stays_as_it_is_but_for_the_scores() -> None:
    theirs = {"license": "mit", "widget": [{"text": "Hello"}], "model-index": "none of the sort"}
    result = Result("t", "test.jsonl", "test", "f1", "F1", 0.5)
    once = add_results(theirs, "m", [result])
    twice = add_results(once, "m", [result])
    assert (once["license"], once["widget"], len(once["model-index"][0]["results"])) == ("mit", theirs["widget"], 1)
    assert twice["model-index"][0]["results"] == once["model-index"][0]["results"] * 2
    text = join_card(twice, "# Body\n\n---\n\nmore\n")
    assert split_card(text) == (twice, "# Body\n\n---\n\nmore\n")
    assert yaml.safe_load(text.split("---\n")[1]) == twice


@pytest.mark.parametrize(
    ("values", "where", "problem", "expected"),
    [
        ({"license": "Apache 2.0"}, "license", "found 'Apache 2.0'", "a name such as apache-2.0, or..."),
        ({"language": ("English",)}, "language", "found 'English'", "ISO 639 codes such as en"),
        ({"datasets": ("../etc",)}, "...", "not a valid name on the Hugging Face hub", "..."),
    ],
)
def test_what_the_hub_would_refuse_is_refused(values: dict, where: str, problem: str, expected: str) -> None:
    with refused(where=where, problem=problem, expected=expected):
        CardConfig(**values)
