from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.labelled.folds import hold_out, split_folds, write_folds
from domainbert.labelled.formats import NerFormat, TaggedFormat
from domainbert.labelled.sets import LabelledFile, read_set
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import read as read_classification
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.token_labels.config import TokenLabels
from tests.refusals import refused

_KEYS = ("validation", "train")


class Files(NamedTuple):
    train: Path
    validation: Path


def written(train: Path, task: TaskConfig, num_folds: int, out: Path) -> list[Files]:
    changes = write_folds(split_folds(train, task, num_folds, 1), train, out)
    assert list(changes) == [f"fold-{number}" for number in range(1, num_folds + 1)]
    return [Files(Path(change["train"]), Path(change["validation"])) for change in changes.values()]


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("header", ["", "token tag\n"])
def test_each_sentence_validates_once_and_documents_stay_together(tmp_path: Path, marked: bool, header: str) -> None:
    train = tmp_path / "train.conll"
    mark = "-DOCSTART- O\n\n" if marked else ""
    documents = [mark + "".join(f"d{i}s{j} B-X\nend O\n\n" for j in range(3)) for i in range(5)]
    train.write_text(header + "".join(documents).rstrip("\n"))
    format = NerFormat(token_column="token", tag_column="tag") if header else NerFormat()
    folds = written(train, Ner(format), 4, tmp_path / "folds")
    seen: Counter[str] = Counter()
    for fold in folds:
        held, rest = (
            [one.words[0] for one in read_ner(path, format).sentences] for path in (fold.validation, fold.train)
        )
        assert not set(held) & set(rest) and len(held) + len(rest) == 15
        assert rest == sorted(rest)
        if marked:
            assert not {word[:2] for word in held} & {word[:2] for word in rest}
        seen.update(held)
    assert set(seen.values()) == {1} and len(seen) == 15


def test_sentences_of_a_treebank_keep_what_stands_before_their_words(tmp_path: Path) -> None:
    """Comments and multiword tokens go where their sentence goes; cut off, they would be sentences of their own."""
    rest, tags = "\t_" * 6 + "\n", ("NOUN", "VERB", "ADP")
    sentences = [
        (f"# text = s{n}\n" if n % 2 else f"1-2\ts{n}\t_\t_{rest}")
        + "".join(f"{k}\ts{n}w{k}\t_\t{tag}{rest}" for k, tag in enumerate(tags, 1))
        for n in range(12)
    ]
    train = tmp_path / "train.conllu"
    train.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    task = TokenLabels(format=TaggedFormat(token_column=1, tag_column=3), outside=None)
    for fold in written(train, task, 4, tmp_path / "folds"):
        held, others = ([one.words for one in task.read(path).items] for path in (fold.validation, fold.train))
        assert sorted(held + others) == sorted([f"s{n}w{k}" for k in (1, 2, 3)] for n in range(12))
        parts = [path.read_text(encoding="utf-8").splitlines() for path in (fold.validation, fold.train)]
        assert len(parts[0]) + len(parts[1]) == len(train.read_text(encoding="utf-8").splitlines())


def test_sentences_that_share_a_rare_entity_stay_together(tmp_path: Path) -> None:
    """A string of three words or more in two or three sentences; `s9` and `s0` hang together by what `s5` has of each.
    One of twelve sentences, and one of two words, bind nothing."""
    entities = {f"s{number}": ["the same name", f"two{number % 2}"][number % 2 :] for number in range(0, 24, 2)}
    for number, one in enumerate(("s0", "s5", "s9")):
        entities[one] = [*entities.get(one, []), "École de Paris"] if number < 2 else ["a trial of vouchers"]
    entities["s5"].append("a Trial of Vouchers")
    for number in (1, 3, 7):
        entities[f"s{number}"] = [f"short one{number % 2}"]
    train = tmp_path / "train.conll"
    blocks = []
    for number in range(24):
        lines = [f"s{number} O"]
        for entity in entities.get(f"s{number}", []):
            first, *rest = entity.split()
            lines += [f"{first} B-X", *(f"{word} I-X" for word in rest), "end O"]
        blocks.append("\n".join(lines))
    train.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    folds = written(train, Ner(), 4, tmp_path / "folds")
    held = [{one.words[0] for one in read_ner(fold.validation).sentences} for fold in folds]
    assert sum(map(len, held)) == 24 and {len(one) for one in held} <= {5, 6, 7, 8}
    assert [one & {"s0", "s5", "s9"} for one in held if one & {"s0", "s5", "s9"}] == [{"s0", "s5", "s9"}]
    assert sum(bool(one & {"s1", "s3", "s7"}) for one in held) > 1
    with refused(found="...has 24 documents in 22 groups, because..."):
        split_folds(train, Ner(), 23, 1)


def test_a_text_that_begins_with_a_byte_order_mark_keeps_it(tmp_path: Path) -> None:
    """Also if its line becomes the first line of a file, where readers skip one mark."""
    texts = ["\ufeff" * (1 + number % 2) + f"text {number}" for number in range(12)]
    train = LabelledFile(text=tmp_path / "text.txt", label=tmp_path / "labels.txt")
    train.text.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8-sig")
    train.label.write_text("up\n" * 12)
    out, task = tmp_path / "folds", Classification()
    for fold in write_folds(split_folds(train, task, 3, 1), train, out):
        parts = [LabelledFile(text=out / fold / f"{key}-1.txt", label=out / fold / f"{key}-2.txt") for key in _KEYS]
        held, rest = ([item.text for item in read_set(task, part).items] for part in parts)
        assert len(held) == 4 and sorted(held + rest) == sorted(texts)


def test_copies_of_a_text_stay_together(tmp_path: Path) -> None:
    """Copies may have another case, other punctuation and another label; short texts may be equal by chance."""
    texts = [f"Der Bericht Nummer {number} über die Inflation" for number in range(20)]
    copies = [f"{text.upper()}!" for text in texts[:8]] + texts[:4]
    rows = [*texts, *copies, *["Vielen Dank."] * 12]
    train = tmp_path / "train.jsonl"
    lines = [json.dumps({"text": text, "label": "ab"[number % 2]}) for number, text in enumerate(rows)]
    train.write_text("\n".join(lines) + "\n")
    thanks = []
    for fold in written(train, Classification(), 3, tmp_path / "folds"):
        held, rest = (
            [one.text.casefold().rstrip("!") for one in read_classification(Classification(), path).items]
            for path in (fold.validation, fold.train)
        )
        assert len(held) + len(rest) == len(rows)
        assert set(held) & set(rest) == {"vielen dank."}
        thanks.append(held.count("vielen dank."))
    assert sum(thanks) == 12 and min(thanks) > 0


def test_a_copy_with_a_label_of_its_own_takes_its_group_into_training(tmp_path: Path) -> None:
    texts = [f"Der Bericht Nummer {number} über die Inflation" for number in range(40)]
    rows = [*((text, "ab"[number % 2]) for number, text in enumerate(texts)), (texts[0].upper(), "rare")]
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    held_sizes = set()
    for seed in range(10):
        fold = hold_out(train, Classification(), 5, seed)
        held, rest = (
            {json.loads(line)["text"] for line in part.splitlines()} for (part,) in (fold.validation, fold.train)
        )
        assert {texts[0], texts[0].upper()} <= rest and len(held) + len(rest) == 41
        held_sizes.add(len(held))
    assert held_sizes == {7, 8}  # 7 if the group was held out first


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_classes_are_spread_evenly(tmp_path: Path, suffix: str) -> None:
    train = tmp_path / f"train.{suffix}"
    rows = [{"text": f"text\nno {i}", "label": "rare" if i % 4 == 0 else "usual"} for i in range(24)]
    with open(train, "w", newline="") as file:
        if suffix == "csv":
            writer = csv.DictWriter(file, ["text", "label"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    folds = written(train, Classification(), 3, tmp_path / "folds")
    held = [read_classification(Classification(), fold.validation).items for fold in folds]
    assert [Counter(text.label for text in texts) for texts in held] == [{"rare": 2, "usual": 6}] * 3
    assert {text.text for texts in held for text in texts} == {row["text"] for row in rows}
    assert [len(read_classification(Classification(), fold.train).items) for fold in folds] == [16] * 3
    again = written(train, Classification(), 3, tmp_path / "again")
    assert [fold.train.read_bytes() for fold in again] == [fold.train.read_bytes() for fold in folds]


@pytest.mark.parametrize("in_all", [False, True])
def test_names_in_the_first_row_hold_for_each_fold(tmp_path: Path, in_all: bool) -> None:
    """The files without the first row had classes called 0 and 1; tags could not be read at all."""
    names, train = ["O", "B-X"], tmp_path / "train.jsonl"
    texts = [{"text": f"t\u00e9xt {i}", "label": i % 2, "n": "\udc00"} for i in range(12)]
    sentences = [{"tokens": [f"w{i}"], "ner_tags": [1]} for i in range(12)]
    for rows, task in ((texts, Classification()), (sentences, Ner())):
        named = [{**row, **({"label_names": names} if in_all or i == 0 else {})} for i, row in enumerate(rows)]
        train.write_text("\n" + "".join(json.dumps(row) + "\n" for row in named))
        for fold in written(train, task, 3, tmp_path / task.name):
            for path in (fold.train, fold.validation):
                found = [json.loads(line) for line in path.read_text().splitlines() if line]
                assert found[0]["label_names"] == names
                assert all({key: row[key] for key in rows[0]} in rows for row in found)
                if isinstance(task, Ner):
                    assert {tag for one in read_ner(path).sentences for tag in one.tags} == {"B-X"}
                else:
                    assert {text.label for text in read_classification(Classification(), path).items} == set(names)


def test_half_a_character_in_another_key_of_an_array(tmp_path: Path) -> None:
    rows = [{"text": f"Zürich {i}", "label": "ab"[i % 2], "n": "\udc00" if i else "é"} for i in range(6)]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    folds = written(tmp_path / "train.json", Classification(), 3, tmp_path)
    arrays = [fold.validation.read_text() for fold in folds]
    assert sorted(chain(*map(json.loads, arrays)), key=lambda row: row["text"]) == rows
    assert sum(array.count("Zürich") for array in arrays) == 1  # only what cannot be encoded is escaped


def test_fewer_texts_than_folds(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": "b"}\n')
    with refused(where="k_folds", found="2, but ...train.jsonl has 1 document", expected="no k_folds"):
        split_folds(tmp_path / "train.jsonl", Classification(), 2, 1)


def test_a_label_of_one_document_is_refused_before_anything_trains(tmp_path: Path) -> None:
    train, mark = tmp_path / "train.conll", "-DOCSTART- O\n\n"
    train.write_text("".join(f"{mark}w{i} B-A\n\nv{i} {'B-RARE' if i == 3 else 'B-A'}\n\n" for i in range(6)))
    with refused(problem="...'RARE' in fold ... only, so training without that fold would not..."):
        split_folds(train, Ner(), 3, 0)
    train.write_text(train.read_text().replace("v2 B-A", "v2 B-RARE"))
    knowing = [number for number in range(20) if _splits(train, number)]
    assert 0 < len(knowing) < 20  # the two documents fall into the same fold sometimes


def _splits(train: Path, seed: int) -> bool:
    try:
        return len(split_folds(train, Ner(), 3, seed)) == 3
    except DomainbertError:
        return False


def test_parallel_files_are_split_together(tmp_path: Path) -> None:
    names = ("bad", "good")
    task = Classification(ClassificationFormat(label_names=names, slice_keys=("language",)))
    files: list[Path | LabelledFile] = []
    for language, count in (("arabic", 6), ("french", 3)):
        text, label = (tmp_path / f"{language}_{kind}.txt" for kind in ("text", "labels"))
        text.write_text("".join(f"{language} {number}\n" for number in range(count)))
        label.write_text("".join(f"{number % 2}\n" for number in range(count)))
        files.append(LabelledFile(text=text, label=label, slices={"language": language}))
    whole = {(one.text, one.label, one.slices["language"]) for one in read_set(task, files).items}
    changes = write_folds(split_folds(files, task, 3, 1), files, tmp_path / "folds")
    seen = []
    for change in changes.values():
        held, rest = (
            [LabelledFile(**{**one, "text": Path(one["text"]), "label": Path(one["label"])}) for one in change[key]]
            for key in ("validation", "train")
        )
        found = [(one.text, one.label, one.slices["language"]) for one in read_set(task, held).items]
        assert len(found) == 3 and {label for _, label, _ in found} == set(names)
        assert {(one.text, one.label, one.slices["language"]) for one in read_set(task, rest).items} == whole - set(
            found
        )
        seen += found
    assert set(seen) == whole and len(seen) == 9


def test_copies_of_contexts_in_one_line_stay_together(tmp_path: Path) -> None:
    contexts = [f"In {year} prices rose in most of the regions." for year in range(2010, 2016)]
    contexts.append(contexts[0].upper())

    def answer(context: str) -> dict[str, object]:
        return {"text": context[3:7], "answer_start": 3}

    paragraphs = [
        {"context": context, "qas": [{"id": str(number), "question": "When?", "answers": [answer(context)]}]}
        for number, context in enumerate(contexts)
    ]
    train = tmp_path / "train.json"
    train.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    with refused(found="...has 7 documents in 6 groups, because copies..."):
        split_folds(train, QuestionAnswering(), 7, 1)
    folds = written(train, QuestionAnswering(), 6, tmp_path / "folds")
    held = [{one.id for one in read_set(QuestionAnswering(), fold.validation).items} for fold in folds]
    assert {"0", "6"} in held


def test_questions_of_several_files_are_split_by_context(tmp_path: Path) -> None:
    nested, flat = tmp_path / "a.json", tmp_path / "b.jsonl"
    contexts = [f"In {year} prices rose." for year in (2010, 2011, 2012)]
    answer = {"text": "prices", "answer_start": 8}
    paragraphs = [
        {"context": context, "qas": [{"id": f"{number}-{k}", "question": "What?", "answers": [answer]} for k in (1, 2)]}
        for number, context in enumerate(contexts)
    ]
    nested.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    row = {"id": "9", "question": "What?", "context": "Now prices rose.", "answers": {"text": [], "answer_start": []}}
    flat.write_text(json.dumps(row) + "\n")
    task, files = QuestionAnswering(), [nested, flat]
    ids = {one.id for one in read_set(task, files).items}
    changes = write_folds(split_folds(files, task, 4, 1), files, tmp_path / "folds")
    seen: list[str] = []
    for change in changes.values():
        held, rest = ([one.id for one in read_set(task, [*map(Path, change[key])]).items] for key in _KEYS)
        assert set(rest) == ids - set(held) and len({one[0] for one in held}) == 1
        assert len(change["validation"]) == 1, "a file of which no question is there is left out"
        seen += held
    assert sorted(seen) == sorted(ids)
