"""Files in CoNLL-U and CoNLL-X: trees, and refused files."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.labelled.folds import split_folds
from domainbert.labelled.formats import TaggedFormat
from domainbert.labelled.items import label_set
from domainbert.metrics.summary import Resampling
from domainbert.stages.early_checks import StageArguments
from domainbert.stages.evaluate import check_arguments
from domainbert.tasks.parsing.config import Parsing, ParsingFormat
from domainbert.tasks.parsing.files import read as read_treebank
from domainbert.tasks.parsing.scoring import TreeScoring
from domainbert.tasks.parsing.trees import Tree
from domainbert.tasks.token_labels.config import TokenLabels
from tests.tasks.treebank import conllu, sentence, write

ROWS = """\
# newdoc id = a
# sent_id = 1
1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_
2\tel\tel\tDET\t_\t_\t3\tdet\t_\t_
3\tbanco\tbanco\tNOUN\t_\t_\t0\troot\t_\tSpaceAfter=No
3.1\tes\tser\tVERB\t_\t_\t_\t_\t0:root\t_
4\t10 000\t_\tNUM\t_\t_\t3\tnummod:gov\t_\t_
5\t…\t_\t_\t_\t_\t3\tpunct\t_\t_

# sent_id = 2
1\tSí\tsí\tINTJ\t_\t_\t0\troot\t_\t_

"""


def file(path: Path, rows: str = ROWS) -> Path:
    path.write_text(rows, encoding="utf-8")
    return path


def test_parts_of_speech_are_read_from_a_treebank(tmp_path: Path) -> None:
    """By a task of labelled words, too: no multiword token, empty node or comment is a word."""
    format = TaggedFormat(token_column=1, tag_column=3)
    rows = ROWS.replace("…\t_\t_\t", "…\t_\tPUNCT\t")
    found = TokenLabels(format=format, outside=None).read(file(tmp_path / "a.conllu", rows))
    assert [one.words for one in found.items] == [["de", "el", "banco", "10 000", "…"], ["Sí"]]
    assert [one.tags for one in found.items] == [["ADP", "DET", "NOUN", "NUM", "PUNCT"], ["INTJ"]]
    assert "tags in column 3, 5 lines of CoNLL-U without a word left out" in found.describe()
    names = "# global.columns = ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC\n"
    format = TaggedFormat(token_column="FORM", tag_column="UPOS")
    named = TokenLabels(format=format, outside=None).read(file(tmp_path / "b.conllu", names + rows))
    assert [(one.words, one.tags) for one in named.items] == [(one.words, one.tags) for one in found.items]
    assert "5 lines of CoNLL-U" in named.describe()


def test_a_parser_to_come_may_be_scored_without_subtypes(tmp_path: Path) -> None:
    path = file(tmp_path / "a.conllu")
    training = StageArguments({"task": Parsing(), "model": Path("model"), "train": path})
    task = Parsing(format=ParsingFormat(subtypes=False))
    given = StageArguments(
        {"models": {"a": Path("run/a")}, "task": task, "test": path, "train": None}, {"run/a": training}
    )
    check_arguments(given)
    assert given.problems == []


def test_words_heads_and_labels(tmp_path: Path) -> None:
    found = read_treebank(Parsing(), file(tmp_path / "a.conllu"))
    first, second = found.items
    assert first.words == ["de", "el", "banco", "10 000", "…"] and second.words == ["Sí"]
    assert first.heads == [3, 3, 0, 3, 3] and second.arcs == [(0, "root")]
    assert first.labels == ["case", "det", "root", "nummod:gov", "punct"]
    assert first.punctuation == [False, False, False, False, True]  # by its character: it has no tag
    assert (first.line, second.line) == (1, 11) and found.unit == "sentences"
    assert found.describe().endswith(
        "2 sentences, 6 words, and 1 multiword tokens, 1 empty nodes, which are dropped; "
        "CoNLL (10 columns); 5 labels (case 1, det 1, nummod:gov 1, punct 1, root 2)"
    )
    universal = read_treebank(Parsing(format=ParsingFormat(subtypes=False)), tmp_path / "a.conllu")
    assert universal.items[0].labels[3] == "nummod"


def test_conll_x_windows_line_ends_and_gzip(tmp_path: Path) -> None:
    words = ["He\the\tPRP\tPRP\t_\t2\tnsubj", "ran\trun\tVBD\tVBD\t_\t0\troot", "``\t_\t``\t``\t_\t2\tpunct"]
    rows = "\r\n".join(f"{number}\t{word}\t_\t_" for number, word in enumerate(words, 1))
    with gzip.open(tmp_path / "a.conll.gz", "wb") as stream:
        stream.write(rows.encode())
    found = read_treebank(Parsing(), tmp_path / "a.conll.gz")
    assert found.items[0].heads == [2, 0, 2] and found.items[0].punctuation == [False, False, True]
    assert found.unit == "sentences" and "in 1 documents" not in found.describe()


@pytest.mark.parametrize("tag", ["`", "``", "''", ":", ",", ".", "PU", "PUNCT", "SYM", "NOUN", "NN"])
def test_punctuation_is_what_allennlp_leaves_out(tmp_path: Path, tag: str) -> None:
    rows = f"1\t.\t_\t{tag}\tx\t_\t0\troot\t_\t_\n"
    (item,) = read_treebank(Parsing(), file(tmp_path / "a.conllu", rows)).items
    assert item.punctuation == [tag not in ("NOUN", "NN")]


def rows_of(*arcs: tuple[int | str, str], start: int = 1) -> str:
    return "".join(
        f"{number}\tw\t_\tX\t_\t_\t{head}\t{label}\t_\t_\n" for number, (head, label) in enumerate(arcs, start)
    )


GOOD = rows_of((0, "root"))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            f"{GOOD}\n1\tw\t_\tX\t_\t_\t0\troot\n",
            "a.conllu:3: 8 columns separated by tabs; expected the 10 columns of C",
        ),
        ("1 w _ X _ _ 0 root _ _\n", "a.conllu:1: 1 column separated by tabs; expected the 10"),
        (f"{GOOD}{GOOD}", "a.conllu:2: word number '1'; expected 2, as words are numbered from 1"),
        (rows_of((0, "root"), start=2), "a.conllu:1: word number '2'; expected 1"),
        (rows_of((0, "root"), (3, "x")), "a.conllu:2: head '3'; expected a number from 0, the root, to 2"),
        (rows_of((0, "root"), (-1, "x")), "a.conllu:2: head '-1'; expected a number"),
        (rows_of((0, "root"), ("_", "x")), "a.conllu:2: head '_'; expected a number"),
        (rows_of((0, "root"), ("²", "x")), "a.conllu:2: head '²'; expected a number"),
        (rows_of((0, "root"), (1, "_")), "a.conllu:2: label '_'; expected visible characters"),
        (rows_of((0, "root"), (1, " x")), "a.conllu:2: label ' x'; expected visible characters"),
        (f"{GOOD}2\t \t_\tX\t_\t_\t1\tx\t_\t_\n", "a.conllu:2: no form in column 2; expected a word"),
        (
            f"# c\n{rows_of((2, 'x'), (1, 'x'))}",
            "a.conllu:2: no word has head 0; expected head 0 at one word, the root",
        ),
        (
            f"{GOOD}\n{rows_of((0, 'root'), (1, 'x'), (0, 'root'))}",
            r"a.conllu:5: word 3 has head 0, as word 1 \(line 3\) has; expected one root: attach one to the other",
        ),
        (rows_of((0, "r"), (3, "x"), (4, "x"), (2, "x")), "a.conllu:2: the heads form a cycle, 2 -> 3 -> 4 -> 2; expe"),
        (rows_of((0, "r"), (2, "x")), "a.conllu:2: the heads form a cycle, 2 -> 2; expected a tree"),
        ("# only\n\n", "a.conllu: no sentences; expected words with heads, in CoNLL-U or CoNLL-X"),
        (rows_of((0, "r"), (9, "x"), (1, "_")), "a.conllu: 2 problems"),
    ],
)
def test_what_is_no_tree_is_named(tmp_path: Path, rows: str, problem: str) -> None:
    with pytest.raises(DomainbertError, match=problem):
        read_treebank(Parsing(), file(tmp_path / "a.conllu", rows))


def test_folds_keep_documents_and_comments_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllu", 24, seed=3, documents=4)
    folds = split_folds(path, Parsing(), 3, seed=0)
    whole = path.read_text(encoding="utf-8")
    for fold in folds:
        assert (fold.train[0].count("# newdoc"), fold.validation[0].count("# newdoc")) == (4, 2)
        assert all(part + "\n\n" in whole for part in fold.validation[0].strip("\n").split("\n\n"))
        read_treebank(Parsing(), file(tmp_path / "fold.conllu", fold.train[0]))
    assert sorted("".join(fold.validation[0] for fold in folds)) == sorted(whole)


def test_the_made_up_trees_are_trees(tmp_path: Path) -> None:
    draw = random.Random(0)
    found = read_treebank(Parsing(), file(tmp_path / "a.conllu", conllu([sentence(draw) for _ in range(200)])))
    assert len(found.items) == 200 and max(len(one.words) for one in found.items) > 15


def test_labels_of_models_are_read_as_those_of_the_file(tmp_path: Path) -> None:
    """A parser with subtypes that is right in everything has a LAS of 1 without them."""
    path = file(tmp_path / "a.conllu")
    whole = read_treebank(Parsing(), path)
    trees = [Tree(one.arcs, [1.0] * len(one.arcs)) for one in whole.items]
    predictor = SimpleNamespace(
        task=SimpleNamespace(decoding="mst"), labels=label_set(whole.items), predict_trees=lambda _: trees
    )
    assert "nummod:gov" in predictor.labels
    for subtypes in (True, False):
        config = Parsing(format=ParsingFormat(subtypes=subtypes))
        scoring = TreeScoring(config, config.read(path))
        scoring.add_model("a", "1", predictor, tmp_path / f"{subtypes}.conllu")
        summary = scoring.summary(Resampling(100, 0))["systems"]["a"]
        assert (summary["las"], summary["uas"]) == (1, 1)
        assert ("nummod:gov" in summary["per_label"], "nummod" in summary["per_label"]) == (subtypes, not subtypes)
