"""Relations between marked entities: reading, windows, scores, loss, and all stages."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.corpus.file_kind import FileKind
from domainbert.data.batches import LabelledBatches, Share
from domainbert.distillation.teachers import load_teachers
from domainbert.labelled.contents import key_of_content, words_of_content
from domainbert.labelled.folds import split_folds
from domainbert.labelled.items import label_counts
from domainbert.metrics.summary import Resampling
from domainbert.models.added_tokens import add_tokens
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.serving.predictor import load_predictor
from domainbert.stages.distill_task import DistillTask
from domainbert.stages.early_checks import StageArguments
from domainbert.stages.evaluate import check_arguments, evaluate
from domainbert.tasks.config import TASK_KEY
from domainbert.tasks.relations.config import RelationFormat, Relations, classes_of, outputs_at_starts
from domainbert.tasks.relations.files import RelatedEntities, RelationFile
from domainbert.tasks.relations.marked import find_markers, insert_markers, marked_text
from domainbert.tasks.relations.reading import ADDED_MARKERS, MarkerReading, centred_window
from domainbert.tasks.relations.scoring import Relation, RelationScoring
from domainbert.tasks.relations.task import RelationsTask, StartsRelationsTask
from domainbert.tasks.task import encode_file, task_from_training_set
from domainbert.tokenization.align import align_text, basic_words
from domainbert.tokenization.extend import with_tokens
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.refusals import refused
from tests.tasks.tiny_folders import FAMILIES, Folders, tiny_model
from tests.tokenization import test_byte_bpe as byte_bpe
from tests.tokenization import test_unigram as unigram

MARKERS = ("<<", ">>", "[[", "]]")
CLASSES = ("none", "part-of", "used-for")


def rows_in(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def offsets(start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, **more}


def test_markers_in_a_text_are_found() -> None:
    marked = find_markers("Of << café >>-like [[ B\u00e9ta ]], 5-[[(C and STA2>>D", MARKERS)
    assert [marked.text[start:end] for start, end in marked.marks] == list(MARKERS)
    assert marked.with_markers(("(", ")", "{", "}"))[0] == "Of ( café )-like { Béta }, 5-[[(C and STA2>>D"
    assert find_markers("<e1>A</e1> b <e2>C</e2>", ("<e1>", "</e1>", "<e2>", "</e2>")).unmarked == "AbC"
    nested = find_markers("<< [[ A ]] B >>", MARKERS)
    assert nested.marks == ((0, 2), (13, 15), (3, 5), (8, 10)) and nested.unmarked == "AB"
    assert find_markers("[[ A ]] of << B >>", MARKERS).marks[0] == (11, 13)
    assert find_markers("<< A >> of [[ B ]] and 4-[[(C)x]]amine >> D", MARKERS).unmarked == "AofBand4-[[(C)x]]amine>>D"
    for text, count in (
        ("x << y , << A >> of [[ B ]]", 2),
        ("<<A>> of [[B]], as 1 << 2 >> 1", 2),
        ("<<<<A>> [[B]]", 2),
    ):
        with refused(problem=f"{count} entities begin with '<<'", expected="one between..."):
            find_markers(text, MARKERS)
    assert key_of_content(marked) == [marked.text, [list(mark) for mark in marked.marks]]
    assert words_of_content(nested) == ["<<", "[[", "A", "]]", "B", ">>"]


@pytest.mark.parametrize(
    ("head", "tail", "text"),
    [
        ((0, 4), (9, 13), "<< Cash >> and [[ loan ]]-like"),
        ((9, 13), (0, 4), "[[ Cash ]] and << loan >>-like"),
        ((0, 13), (9, 13), "<< Cash and [[ loan ]] >>-like"),
        ((0, 4), (0, 13), "[[ << Cash >> and loan ]]-like"),
        ((0, 4), (0, 4), "<< [[ Cash ]] >> and loan-like"),
        ((0, 4), (4, 8), "<< Cash >> [[  and ]] loan-like"),
        ((13, 18), (9, 13), "Cash and [[ loan ]] << -like >>"),
    ],
)
def test_markers_are_put_around_characters(head: Any, tail: Any, text: str) -> None:
    marked = insert_markers("Cash and loan-like", head, tail, MARKERS)
    assert marked.text == text and marked.unmarked == "Cashandloan-like"
    assert [text[start:end] for start, end in marked.marks] == list(MARKERS)


@given(st.text("ab é", min_size=1, max_size=12), st.data())
def test_any_two_stretches_are_marked_or_refused(text: str, data: Any) -> None:
    places = st.tuples(*[st.integers(0, len(text))] * 2).filter(lambda one: one[0] < one[1])
    head, tail = data.draw(places), data.draw(places)
    row = {"text": text, "head": offsets(*head), "tail": offsets(*tail)}
    (a, b), (c, d) = sorted((head, tail))
    if not text.strip():
        return
    (words,) = basic_words([text])
    begins, ends = {start for start, _ in words}, {end for _, end in words}
    if not {a, c} <= begins or not {b, d} <= ends:
        with refused(problem="...is not at word boundaries", expected="whole words:..."):
            marked_text(row, "text", RelationFormat())
        return
    if a < c < b < d:
        with pytest.raises(DomainbertError, match="overlap; expected entities that do not overlap, or one inside"):
            marked_text(row, "text", RelationFormat())
        return
    marked = marked_text(row, "text", RelationFormat())
    assert [marked.text[start:end] for start, end in marked.marks] == list(MARKERS)
    assert marked.unmarked == "".join(text.split())
    letters = "".join(marked.with_markers(("{", "}", "[", "]"))[0].split())
    for opening, closing, (start, end) in (("{", "}", head), ("[", "]", tail)):
        inside = letters[letters.index(opening) : letters.index(closing)]
        assert re.sub(r"[][{}]", "", inside) == "".join(text[start:end].split())


def test_spaces_are_around_markers_that_are_tokens_alone() -> None:
    marked = marked_text({"text": "a<< é >>-[[ b ]]."}, "text", RelationFormat())
    read = {kind: MarkerReading(kind, RelationFormat()).text_to_read(marked) for kind in ("text", "tokens")}
    assert read["text"][0] == marked.with_markers(RelationFormat().markers)[0]
    text, starts = read["tokens"]
    head, end_of_head, tail, end_of_tail = ADDED_MARKERS
    assert text.split() == ["a", head, "é", end_of_head, "-", tail, "b", end_of_tail, "."]
    assert [text[start:].split()[0] for start in starts] == [head, end_of_head, tail, end_of_tail]


@pytest.mark.parametrize(
    ("row", "where", "problem", "expected"),
    [
        ({"text": "<< A >> B"}, "...", "no tail entity", "one between '[[' and ']]'..."),
        ({"text": "<< A >> << B >> [[ C ]]"}, "...", "2 entities begin with '<<'", "one..."),
        ({"text": "<< A [[ B >> C ]]"}, "...", "... overlap", "entities that do not overlap..."),
        ({"text": "A B", "head": offsets(0, 1)}, "'tail'", "missing", "an object such as..."),
        ({"text": "A B", "head": [0, 1], "tail": offsets(2, 3)}, "'head'", "found a JSON list", "an object..."),
        (
            {"text": "A B", "head": offsets(0, 4), "tail": offsets(2, 3)},
            "'head'",
            "start 0, end 4 in a text of 3...",
            "...",
        ),
        (
            {"text": "é B", "head": offsets(0, 1, text="B"), "tail": offsets(2, 3)},
            "...",
            "...are '\xe9', but the annotation has 'B'",
            "... not...",
        ),
        ({"text": "A B C", "head": offsets(0, 3), "tail": offsets(2, 5)}, "...", "'A B' and 'B C' overlap", "..."),
        ({"text": "<< A >> [[ B ]]", "label": None}, "...", "'label' is null", "a string or whole number"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, row: Any, where: str, problem: str, expected: str) -> None:
    with refused(file="a.jsonl", line=1, where=where, problem=problem, expected=expected):
        Relations().read(rows_in(tmp_path / "a.jsonl", [{"label": "x", **row}]))


def test_markers_that_cannot_be_told_apart_are_refused() -> None:
    with refused(where="text_pair_key", found="'other'"):
        RelationFormat(text_pair_key="other")
    with refused(where="label_key", found="'text', as for text_key"):
        RelationFormat(label_key="text")
    with refused(where="head_markers, tail_markers", found="'<' '>' '<' '>'"):
        RelationFormat(head_markers=("<", ">"), tail_markers=("<", ">"))


def test_files_of_both_forms(tmp_path: Path) -> None:
    """SciERC marks argument 1 with [[ ]]; rows with characters and rows with markers may stand in one file."""
    rows = [
        {"text": "[[ BERT ]] for << parsing >> .", "label": "used-for"},
        {
            "text": "BERT for parsing .",
            "head": offsets(0, 4, type="Method"),
            "tail": offsets(9, 16),
            "label": "used-for",
        },
        {"text": "BERT for parsing .", "head": offsets(9, 16), "tail": offsets(0, 4), "label": "none"},
        {"text": "[[ A ]] of << B >>", "label": "part-of"},
    ]
    config = Relations(RelationFormat(head_markers=("[[", "]]"), tail_markers=("<<", ">>")))
    file = config.read(rows_in(tmp_path / "a.jsonl", rows))
    texts = [item.content.text for item in file.items]
    assert texts[0] == texts[1] == "[[ BERT ]] for << parsing >> ." and texts[2] == "<< BERT >> for [[ parsing ]] ."
    assert file.items[0].content.marks == file.items[1].content.marks
    assert file.describe().endswith("a.jsonl: 4 texts; JSONL; 3 relations (none 1, part-of 1, used-for 2)")
    assert [(unit.line, sorted(unit.labels)) for unit in file.units()] == [(1, ["none", "used-for"]), (4, ["part-of"])]
    (tmp_path / "a.csv").write_text('text,label\n"<< A >>, [[ B ]]",1\n<< C >> [[ D ]],0\n')
    numbered = Relations(RelationFormat(label_names=("no", "yes"))).read(tmp_path / "a.csv")
    assert [item.label for item in numbered.items] == ["yes", "no"]


@pytest.mark.parametrize(
    ("name", "size", "inhibitors"), [("train", 4169, 1642), ("dev", 2427, 812), ("test", 3469, 1255)]
)
def test_chemprot_is_read_whole(bio_data: Path, name: str, size: int, inhibitors: int) -> None:
    """Texts such as `5-[[(C` and `A >> B` are among them."""
    path = bio_data / f"chemprot/{name}.jsonl"
    file = Relations().read(path)
    assert len(file.items) == size > len(file.units())
    counts = label_counts(file.items)
    assert counts["INHIBITOR"] == inhibitors and sum(counts.values()) == size
    for item, line in zip(file.items, path.read_text().splitlines(), strict=True):
        assert item.content.text == json.loads(line)["text"] == item.content.with_markers(MARKERS)[0]


@given(st.data())
def test_the_window_is_centred_and_holds_both_entities(data: Any) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=60))
    starts = [0, *np.cumsum(sizes)[:-1].tolist()]
    pieces = sum(sizes)
    first = data.draw(st.sampled_from(starts))
    end = data.draw(st.integers(first + 1, pieces))
    room = data.draw(st.integers(end - first, 70))
    start, stop = centred_window(starts, pieces, room, first, end)
    assert 0 <= start <= first < end <= stop <= pieces and stop - start <= room
    if pieces <= room:
        assert (start, stop) == (0, pieces)
    else:
        assert start in starts
        assert stop == pieces or stop - start == room
        if start > 0 and stop < pieces:
            assert abs((first - start) - (stop - end)) <= 2 * (3 + 1)  # it moved on to the beginning of a word


@pytest.fixture(scope="module")
def vocabulary() -> DomainTokenizer:
    """Letters, words of several pieces, brackets."""
    pieces = ["men", "'", "s", "bank", "##s", "##er", *"<>[]abcdefgh", *"[/]", "e", "1", "2"]
    tokens = dict.fromkeys([*SPECIAL_TOKENS.values(), *pieces])
    return DomainTokenizer(bert_backend({token: number for number, token in enumerate(tokens)}, {}))


def task_of(markers: Any = "text", head: str = "cls", **more: Any) -> RelationsTask:
    config = Relations(markers=markers, head=head, **more)
    items = [RelatedEntities(find_markers("<< a >> [[ b ]]", MARKERS), label, 1) for label in CLASSES]
    task = task_from_training_set(config, RelationFile(Path("a.jsonl"), items, "jsonl"))
    assert task.classes == CLASSES
    return task


def made_up(seed: int, count: int) -> list[RelatedEntities]:
    """Entities at any place of texts of any length."""
    draw, items = random.Random(seed), []
    for number in range(count):
        words = [draw.choice(["men's", "banks", "banker", *"abcdefgh"]) for _ in range(draw.randint(2, 80))]
        first = draw.randrange(len(words) - 1)
        second = min(first + draw.randint(1, 3), len(words) - 1)
        places = [first, second]
        draw.shuffle(places)
        starts = [sum(len(word) + 1 for word in words[:place]) for place in places]
        stretches = [(start, start + len(words[place])) for start, place in zip(starts, places, strict=True)]
        marked = insert_markers(" ".join(words), *stretches, MARKERS)
        items.append(RelatedEntities(marked, CLASSES[number % 3], number + 1))
    return items


@pytest.mark.parametrize("markers", ["text", "tokens"])
@pytest.mark.parametrize("head", ["cls", "starts"])
def test_no_marker_is_ever_cut_off(vocabulary: DomainTokenizer, markers: str, head: str) -> None:
    """Of 200 texts, in windows of several lengths: both entities are in the one window, where the head reads them."""
    task = task_of(markers, head)
    tokenizer = with_tokens(vocabulary, added) if (added := task.inputs.added_tokens(task)) else vocabulary
    written = [[tokenizer.tokens[number] for number in ids] for ids in tokenizer.encode(task.reading.markers)]
    longer = 0
    for length in (28, 40, 512):
        for item, example in zip(made_up(0, 200), task.encode(made_up(0, 200), tokenizer, length), strict=True):
            (window,) = example.windows
            assert window.num_tokens <= length
            tokens = [tokenizer.tokens[number] for number in window.input_ids]
            places = [[at for at in range(len(tokens)) if tokens[at : at + len(one)] == one] for one in written]
            assert [len(place) for place in places] == [1, 1, 1, 1]
            entity = "".join(tokens[places[0][0] + len(written[0]) : places[1][0]]).replace("##", "")
            (_, start), (end, _) = item.content.marks[:2]
            assert entity == item.content.text[start:end].strip()
            reads = [places[0][0], places[2][0]] if head == "starts" else [-1]
            assert window.positions.tolist() == reads and window.outputs.tolist() == [0] * len(reads)
            assert set(window.targets.tolist()) == {CLASSES.index(item.label)}
            (whole,) = align_text(tokenizer, [task.reading.text_to_read(item.content)[0]])
            longer += len(whole.input_ids) > len(tokens)
            if len(whole.input_ids) + 2 > length:
                assert len(tokens) > length - 2 - 6  # all but what a word of a few pieces leaves free
    assert longer > 100


@pytest.mark.parametrize("kind", ["byte-level BPE", "Unigram"])
@pytest.mark.parametrize("markers", ["text", "tokens"])
def test_other_kinds_of_vocabulary(kind: str, markers: str, tmp_path: Path) -> None:
    """Spaces belong to pieces there; `transformers` reads the same ids, and the markers stand where the head reads."""
    transformers = pytest.importorskip("transformers")
    texts = [item.content.text for item in made_up(2, 60)] + [f"rates {number}, rise" for number in range(300)]
    texts += ["the café << a >>-like ([[ banks ]]), [/E1] [E2]"] * 9
    train, size = (byte_bpe.train, 300) if kind == "byte-level BPE" else (unigram.train, 128)
    task, tokenizer = task_of(markers, "starts"), train(texts * 3, size)
    if markers == "tokens":
        tokenizer = with_tokens(tokenizer, task.inputs.added_tokens(task))
    tokenizer.save(tmp_path, 512)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    entities = [((0, 3), (4, 9)), ((9, 9 + 4), (4, 8)), ((15, 20), (4, 13))]
    for head, tail in entities:
        marked = insert_markers("the café-like (banks), a", head, tail, MARKERS)
        text, begins = task.reading.text_to_read(marked)
        (example,) = task.encode_contents([marked], tokenizer, 512)
        (window,) = example.windows
        assert (
            window.input_ids.tolist()
            == theirs(text, add_special_tokens=False)["input_ids"]
            == tokenizer.encode([text])[0]
        )
        (encoding,) = tokenizer.encode_with_offsets([text])
        for place, begin in zip(window.positions.tolist(), begins[::2], strict=True):
            start, stop = encoding.offsets[place]
            assert start <= begin < max(stop, start + 1) or text[start:begin].isspace()
            if markers == "tokens":
                assert tokenizer.tokens[int(window.input_ids[place])] in ("[E1]", "[E2]")


def test_entities_that_do_not_fit_are_named_before_anything_is_trained(vocabulary: DomainTokenizer) -> None:
    text = "a " * 30
    items = [
        RelatedEntities(insert_markers(text, (0, 1), (place, place + 1), MARKERS), "none", number)
        for number, place in ((4, 2), (5, 58), (6, 56))
    ]
    file = RelationFile(Path("a.jsonl"), items, FileKind("jsonl"))
    found = (
        r"2 problems\n  a.jsonl:5: the two entities and the text between them have 38 tokens; expected at most 28, as"
    )
    with pytest.raises(DomainbertError, match=found):
        encode_file(task_of(), file, vocabulary, 30)
    with refused(where="text 2", problem="the two entities...", expected="at most 28, as max_length is 30"):
        task_of().encode_contents([items[0].content, items[1].content], vocabulary, 30)
    with refused(where="text 2", problem="row: 2 problems\n  no head entity; expected one between '<<' and '>>'..."):
        task_of().encode_contents([items[0].content, "a b"], vocabulary, 30)


def test_markers_that_a_vocabulary_does_not_know_are_refused(vocabulary: DomainTokenizer) -> None:
    task = task_of(format=RelationFormat(head_markers=("§", "¶")))
    with refused(where="markers", problem="'§' is not in the vocabulary"):
        task.encode([], vocabulary, 30)
    with refused(where="markers", problem="'[E1]' is not in the vocabulary..."):
        task_of("tokens").encode([], vocabulary, 30)
    marked = insert_markers("a [/E2] b", (0, 1), (8, 9), MARKERS)
    with refused(where="text 1", problem="the text contains '[/E2]', which the model adds as a marker"):
        task_of("tokens").encode([RelatedEntities(marked, "none", 7)], with_tokens(vocabulary, ADDED_MARKERS), 30)


def test_the_starts_are_a_linear_layer_on_both_states_side_by_side(vocabulary: DomainTokenizer) -> None:
    """Baldini Soares et al., section 3.2: of the concatenation of the states of the two markers."""
    task, generator = task_of("text", "starts"), np.random.default_rng(0)
    assert isinstance(task, StartsRelationsTask) and task.labels == outputs_at_starts(CLASSES)
    assert (
        classes_of(task.labels) == CLASSES == classes_of(CLASSES) and Relations().known_labels(task.labels) == CLASSES
    )
    examples = task.encode(made_up(1, 5), vocabulary, 60)
    batch = {n: torch.from_numpy(v) for n, v in LabelledBatches(examples, vocabulary, 9999, Share())[0].items()}
    states, weight = generator.normal(size=(10, 8)), generator.normal(size=(3, 16))
    bias = generator.normal(size=6)
    head_of_tokens = np.concatenate([weight[:, :8], weight[:, 8:]])  # the first half is read at the head
    logits = torch.from_numpy(states @ head_of_tokens.T + bias)
    owner = batch["example"].numpy()
    wanted = []
    for text in range(5):
        head, tail = states[owner == text]
        wanted.append(weight @ np.concatenate([head, tail]) + bias[:3] + bias[3:])
    np.testing.assert_allclose(task.class_logits(logits, batch).numpy(), np.stack(wanted), rtol=1e-5)
    gold = [CLASSES.index(made_up(1, 5)[item].label) for item in batch["items"].tolist()]
    log = torch.log_softmax(torch.from_numpy(np.stack(wanted)), dim=-1)
    loss = -sum(float(log[text, label]) for text, label in enumerate(gold))
    assert float(task.loss(logits, batch)) == pytest.approx(loss, rel=1e-5)
    said = task.decode(logits, batch)
    assert [one.label for one in said] == [CLASSES[row.argmax()] for row in wanted]
    assert said[0].scores == pytest.approx(dict(zip(CLASSES, log[0].exp().tolist(), strict=True)), rel=1e-5)


def scoring_of(gold: list[str], **config: Any) -> RelationScoring:
    marked = find_markers("<< a >> [[ b ]]", MARKERS)
    items = [RelatedEntities(marked, label, number) for number, label in enumerate(gold, 1)]
    scoring = RelationScoring(Relations(**config), RelationFile(Path("a.jsonl"), items, "jsonl"))
    scoring.labels = set(CLASSES)
    return scoring


@pytest.mark.filterwarnings("ignore")
@given(
    st.lists(st.tuples(*[st.sampled_from(CLASSES)] * 2), min_size=1, max_size=30),
    st.sampled_from([None, "none"]),
    st.sampled_from(["micro", "macro"]),
)
def test_scores_are_those_of_scikit_learn(pairs: Any, negative: str | None, metric: Any) -> None:
    gold, labels = ([pair[side] for pair in pairs] for side in (0, 1))
    scoring = scoring_of(gold, negative=negative, metric=metric)
    predicted = [Relation(label, {label: 1.0}) for label in labels]
    scoring.predictions = {"a": {"seed-1": predicted}}
    found = scoring.summary(Resampling(100, 0))["systems"]["a"]
    occur = sorted({*gold, *labels} - {negative})
    for average in ("micro", "macro"):
        wanted = f1_score(gold, labels, labels=occur, average=average, zero_division=0.0) if occur else None
        assert found[f"{average}_f1"] == (wanted and pytest.approx(wanted, abs=1e-9))
    assert found["accuracy"] == pytest.approx(accuracy_score(gold, labels), abs=1e-9)
    if negative is None:
        assert found["micro_f1"] == pytest.approx(found["accuracy"], abs=1e-12)
    each = f1_score(gold, labels, labels=[one for one in CLASSES if one != negative], average=None, zero_division=0.0)
    assert [one["f1"] for one in found["per_label"].values()] == pytest.approx(list(each), abs=1e-9)
    confusion = scoring.facts("a")["confusion"]
    assert confusion == {"labels": sorted({*gold, *labels}), "counts": confusion_matrix(gold, labels).tolist()}
    assert scoring.headline.key == f"{metric}_f1" and found[f"{metric}_f1_by_seed"]["seed-1"] == found[f"{metric}_f1"]


def test_the_scores_of_tacred_by_hand() -> None:
    """Of 3 relations 2 are found, one of them as the wrong one, and one where there is none."""
    scoring = scoring_of(["used-for", "part-of", "part-of", "none", "none"], negative="none")
    scoring.predictions = {
        "a": {"1": [Relation(one, {}) for one in ("used-for", "used-for", "none", "part-of", "none")]},
        "b": {"1": [Relation("none", {})] * 5},
    }
    summary = scoring.summary(Resampling(100, 0))
    a, b = summary["systems"]["a"], summary["systems"]["b"]
    assert (a["precision"], a["recall"], a["micro_f1"]) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert a["accuracy"] == pytest.approx(2 / 5) == b["accuracy"] and b["micro_f1"] == 0
    assert list(a["per_label"]) == ["part-of", "used-for"] and "b (1) predicts one label only" in summary["warnings"][0]
    assert scoring.lines(summary)[0].split()[:3] == ["system", "micro", "F1"]


@pytest.mark.parametrize(("negative", "columns"), [("none", 5), (None, 2)])
def test_scores_that_are_equal_by_definition_have_one_column(negative: str | None, columns: int) -> None:
    """Without a negative label each error counts in precision and in recall: both, micro F1 and accuracy are equal."""
    scoring = scoring_of(["used-for", "part-of", "part-of", "none", "none"], negative=negative)
    scoring.predictions = {
        "a": {"1": [Relation(one, {}) for one in ("used-for", "used-for", "none", "part-of", "none")]}
    }
    summary = scoring.summary(Resampling(100, 0))
    found = summary["systems"]["a"]
    names = ("micro_f1", "accuracy", "precision", "recall")
    assert (len({found[name] for name in names}) == 1) == (negative is None)
    head, line = scoring.lines(summary)[:2]
    assert sum(cell.count(".") == 1 and "[" not in cell for cell in line.replace(", ", ",").split()) == columns
    assert ("micro F1 = accuracy" in head) == (negative is None)


def test_pairs_of_entities_in_one_text_are_drawn_together() -> None:
    texts = ["<< a >> [[ b ]] c", "<< x >> [[ y ]]", "a << b >> [[ c ]]", "<< a >> b [[ c ]]"]
    items = [RelatedEntities(find_markers(text, MARKERS), "part-of", line) for line, text in enumerate(texts, 1)]
    test = RelationFile(Path("a.jsonl"), items, "jsonl")
    scoring = RelationScoring(Relations(metric="micro"), test)
    scoring.labels = set(CLASSES)
    found = ["part-of", "none", "part-of", "part-of"]
    scoring.predictions = {"a": {"seed-1": [Relation(label, {label: 1.0}) for label in found]}}
    drawn = np.array(scoring.summary(Resampling(200, 0))["draws"]["a"])
    assert test.unit_ids == [0, 1, 0, 0] and (scoring.num_units, test.unit) == (2, "different texts")
    assert set(drawn) == {0.0, 0.75, 1.0}  # one text, both, the other
    assert scoring.title == "micro F1 over 4 pairs of entities"


def test_a_training_that_came_to_nothing_is_told() -> None:
    items = made_up(0, 4)  # none, part-of, used-for, none
    (warning,) = RelationsTask.training_hooks.warnings(task_of(), items, {"accuracy": 0.5})
    assert "accuracy 50.0 on validation, while predicting 'none' for every text gets 50.0" in warning
    assert RelationsTask.training_hooks.warnings(task_of(), items, {"accuracy": 0.75}) == []
    with refused(where="negative", found="'other'"):
        Relations(negative="other").check_labels(CLASSES)


@pytest.mark.parametrize("trained", ["none", None, "unsaid"])
def test_scores_ask_for_the_label_that_meant_nothing_in_training(
    trained: str | None, vocabularies: Folders, tmp_path: Path
) -> None:
    """Checked before training and before prediction; older folders without the field are accepted."""
    fitted = task_of(negative=None if trained == "unsaid" else trained)
    facts = {TASK_KEY: "relations", **json.loads(json.dumps(fitted.model_config_fields({})))}
    assert facts["domainbert_nothing"] == fitted.null_label
    with refused(where="domainbert_nothing", found="3"):
        RelationsTask.from_model_folder(CLASSES, facts | {"domainbert_nothing": 3})
    if trained == "unsaid":
        del facts["domainbert_nothing"]
    model, tokenizer = tiny_model("bert", vocabularies, 3)
    folder = tmp_path / "model"
    save_model(folder, model, FAMILIES["bert"][1], tokenizer, "sequence", "", CLASSES, 48, facts=facts)
    rows = [{"text": f"<< a >> [[ b ]] {number}", "label": CLASSES[number % 3]} for number in range(6)]
    test, train = (rows_in(tmp_path / name, rows) for name in ("test.jsonl", "train.jsonl"))
    training = StageArguments({"task": Relations(negative=fitted.null_label), "model": Path("model"), "train": train})
    unknown = "negative: found 'x'; expected null or a label of the training set: 'none', 'part-of', 'used-for'"
    for number, negative in enumerate((None, "none", "x")):
        task = Relations(negative=negative)
        other = f"task.negative: found {negative!r}, but models.a was trained with {trained!r}; expected the same"
        given = StageArguments({"models": {"a": folder}, "task": task, "test": test, "train": None})
        check_arguments(given)
        to_come = StageArguments(
            {"models": {"a": Path("run/a")}, "task": task, "test": test, "train": None}, {"run/a": training}
        )
        check_arguments(to_come)
        early, early_to_come = ([(key, str(error)) for key, error in one.problems] for one in (given, to_come))
        if trained == "unsaid":
            assert early == ([("task", unknown)] if negative == "x" else [])
            continue
        assert early_to_come == early
        assert early == (
            [] if negative == trained else [("models.a", f"{other} value, because the scores depend on it")]
        )
        if negative != trained:
            with pytest.raises(DomainbertError, match=re.escape(other)):
                evaluate(tmp_path / str(number), models={"a": folder}, task=task, test=test)


@pytest.mark.parametrize("fields", [{}, {"domainbert_relations": 3}, {"domainbert_relations": {"markers": "x"}}])
def test_a_folder_that_says_nonsense_is_refused(fields: Any) -> None:
    with refused(where="domainbert_relations"):
        RelationsTask.from_model_folder(CLASSES, fields)
    reading = MarkerReading("tokens", RelationFormat(head_key="subject", head_markers=("<e1>", "</e1>")))
    assert MarkerReading.from_model_folder(json.loads(json.dumps(reading.model_config_fields()))) == reading


def test_what_cannot_be_distilled_is_refused_with_the_settings() -> None:
    usual = {"train": Path("a"), "validation": Path("b"), "teachers": ["c"], "losses": []}
    with refused(where="unlabelled", problem="text without labels has no entities"):
        DistillTask(task=Relations(), unlabelled="corpus.txt", **usual)


def test_a_teacher_that_reads_other_markers_is_refused(vocabularies: Folders, tmp_path: Path) -> None:
    """The teacher reads the student's text."""
    model, tokenizer = tiny_model("bert", vocabularies, 3)
    facts = {TASK_KEY: "relations", **task_of("text").model_config_fields({})}
    save_model(tmp_path, model, FAMILIES["bert"][1], tokenizer, "sequence", "", CLASSES, 48, facts=facts)
    assert load_teachers([tmp_path], task_of("text"), "32-true", None, 4).default_max_length == 48
    others = task_of("tokens"), task_of(format=RelationFormat(head_markers=("{", "}")))
    for student, markers in zip(others, (" ".join(ADDED_MARKERS), "{ } [[ ]]"), strict=True):
        wanted = (
            f"reads texts with << >> [[ ]] around the entities; expected a model that reads texts with {markers} around"
        )
        with pytest.raises(DomainbertError, match=re.escape(wanted)):
            load_teachers([tmp_path], student, "32-true", None, 4)


@pytest.mark.parametrize("spare", [0, 2, 9])
def test_added_tokens_get_rows_of_the_embeddings(runs: Any, spare: int) -> None:
    """Others keep theirs bit for bit; rows to spare are used first."""
    model, folder, _ = load_model(runs / "pretrain", "sequence", CLASSES)
    tokenizer, embeddings = folder.tokenizer(), model.encoder.input_embeddings
    before = torch.cat([embeddings.weight.detach(), torch.zeros(spare, embeddings.embedding_dim)])
    embeddings.weight = torch.nn.Parameter(before.clone())
    torch.manual_seed(0)
    wider = add_tokens(model, tokenizer, ADDED_MARKERS)
    size = tokenizer.vocab_size
    assert wider.encode(["a [E1] b[/E2]"])[0].count(size) == 1 and wider.vocab_size == size + 4
    after = embeddings.weight.detach()
    assert len(after) == embeddings.num_embeddings == size + max(spare, 4)
    assert torch.equal(after[:size], before[:size]) and torch.equal(after[size + 4 :], before[size + 4 :])
    apart = (after[size : size + 4] - before[:size].mean(dim=0)) / before[:size].std(dim=0)
    assert 0.8 < float(apart.std()) < 1.2 and float(apart.abs().max()) < 6
    assert add_tokens(model, wider, ADDED_MARKERS) is wider and torch.equal(embeddings.weight.detach(), after)
    assert tokenizer.encode(["a b c, d."]) == wider.encode(["a b c, d."])


@pytest.fixture(scope="module")
def sentences(runs: Any) -> Path:
    """Who is before whom: two entities in texts of any length, by characters in training and marked in the rest."""
    folder: Path = runs / "relations"
    folder.mkdir()
    draw = random.Random(3)
    for split, count in (("train", 288), ("validation", 32), ("test", 40)):
        rows = []
        for _ in range(count):
            words = [draw.choice(["the", "effect", "of", "café", "girls"]) for _ in range(draw.choice([4, 12, 60]))]
            at = draw.randrange(len(words) - 1)
            words[at], words[at + 1] = draw.sample(["cash", "loans"], 2)
            text = " ".join(words)
            head, tail = ({"start": (at := text.index(one)), "end": at + len(one)} for one in ("cash", "loans"))
            if draw.random() < 0.5:
                head, tail = tail, head
            label = ("none", "before", "after")[0 if "of" in words[:4] else 1 + (head["start"] > tail["start"])]
            row = {"text": text, "label": label}
            if split == "validation":
                marked = insert_markers(text, *((one["start"], one["end"]) for one in (head, tail)), MARKERS)
                rows.append({**row, "text": marked.text})
            else:
                rows.append({**row, "head": head, "tail": tail})
        rows_in(folder / f"{split}.jsonl", rows)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("torch_for_onnx")
def test_it_goes_through_every_stage(runs: Any, sentences: Path, tmp_path: Path, one_thread: None) -> None:
    pytest.importorskip("onnxscript")
    transformers = pytest.importorskip("transformers")
    training = f"""
      train: {sentences}/train.jsonl
      validation: {sentences}/validation.jsonl
      batch_size: 8
      max_epochs: 4
      max_length: 32
      optim: {{lr: 2e-3, head_lr: 5e-3}}
      precision: 32-true
      loggers: [jsonl]
      trainer: {{accelerator: cpu, devices: 1}}"""
    task = "{{class_path: Relations, init_args: {{negative: none, markers: {}, head: {}}}}}"
    (tmp_path / "recipe.yaml").write_text(f"""
out: {tmp_path}/run
stages:
  cls: {{stage: finetune, model: {runs / "pretrain"}, task: &tokens {task.format("tokens", "cls")}, \
{in_line(training)}}}
  starts: {{stage: finetune, model: {runs / "pretrain"}, task: {task.format("tokens", "starts")}, {in_line(training)}}}
  student:
      stage: distill-task
      teachers: ["@starts"]
      student: {{first_layers: 1}}
      losses: [SoftTargets, LogitMSE, HardTargets]
      cache: {tmp_path}/cache
      task: {task.format("tokens", "starts")}{training}
  scores:
      stage: evaluate
      models: {{cls: "@cls", starts: "@starts", student: "@student"}}
      task: *tokens
      test: {sentences}/test.jsonl
  said: {{stage: predict, model: "@starts", precision: 32-true, input: {sentences}/test.jsonl}}
  onnx: {{stage: export, model: "@starts", check: {sentences}/validation.jsonl}}
""")
    assert main(["run", str(tmp_path / "recipe.yaml")]) == 0
    run = tmp_path / "run"
    best = run / "cls" / json.loads((run / "cls/seeds.json").read_text())["best"]
    fields, starts = (json.loads((one / "config.json").read_text()) for one in (best, run / "starts/seed-1"))
    assert (fields["domainbert_task"], fields["problem_type"]) == ("relations", "single_label_classification")
    assert fields["domainbert_relations"]["markers"] == "tokens" and list(fields["label2id"]) == [
        "after",
        "before",
        "none",
    ]
    assert [starts["id2label"][number] for number in "23"] == [
        "none at head",
        "after at tail",
    ] and "problem_type" not in starts
    assert fields["vocab_size"] == json.loads((runs / "pretrain/config.json").read_text())["vocab_size"] + 4

    metrics = json.loads((run / "scores/metrics.json").read_text())
    assert metrics["metric"] == {"key": "micro_f1", "name": "micro F1", "direction": "maximize", "percent": True}
    assert len(metrics["paired"]) == 2
    rows = {
        name: [json.loads(line) for line in (run / f"scores/predictions/{name}/seed-1.jsonl").read_text().splitlines()]
        for name in ("cls", "starts", "student")
    }
    for name, system in rows.items():
        gold, said = ([row[key] for row in system] for key in ("gold", "predicted"))
        f1 = f1_score(gold, said, labels=["after", "before"], average="micro", zero_division=0.0)
        assert metrics["systems"][name]["micro_f1_by_seed"]["seed-1"] == pytest.approx(f1, abs=1e-9)
    assert min(metrics["systems"][name]["accuracy"] for name in ("starts", "student")) > 0.5

    predicted = [json.loads(line) for line in (run / "said/predictions.jsonl").read_text().splitlines()]
    assert [row["predicted_label"] for row in predicted] == [row["predicted"] for row in rows["starts"]]
    assert all("head" in row and row["scores"].keys() == {"after", "before", "none"} for row in predicted)
    predictor = load_predictor(run / "starts", "32-true")
    long = max(range(40), key=lambda number: len(rows["starts"][number]["text"]))
    row = json.loads((sentences / "test.jsonl").read_text().splitlines()[long])
    by_characters, by_markers = (
        predictor.predict_rows([one])[0] for one in (row, {"text": rows["starts"][long]["text"]})
    )
    assert predictor.predict_rows([row]) == [by_characters]
    assert by_characters == by_markers == predictor.predict([rows["starts"][long]["text"]])[0]
    assert by_characters.scores == pytest.approx(rows["starts"][long]["scores"], abs=1e-6)
    (exported,) = load_predictor(run / "onnx", "32-true").predict_rows([row])
    assert exported.label == by_characters.label and exported.scores == pytest.approx(by_characters.scores, abs=1e-4)

    theirs, loading = transformers.AutoModelForSequenceClassification.from_pretrained(best, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained(best), load_predictor(best, "32-true")
    short = insert_markers("girls' Cash, café (loans)", (7, 11), (19, 24), MARKERS)
    # " [/E2])": white space beside a marker is of no concern to this vocabulary
    text = short.with_markers(ADDED_MARKERS)[0]
    encoded = tokenizer(text, return_tensors="pt")
    (example,) = ours.task.encode_contents([short], ours.tokenizer, 32)
    assert encoded["input_ids"][0, 1:-1].tolist() == example.windows[0].input_ids.tolist()
    with torch.inference_mode():
        probabilities = torch.softmax(theirs.eval()(**encoded).logits[0], dim=-1).tolist()
    assert ours.predict([short])[0].scores == pytest.approx(
        dict(zip(ours.labels, probabilities, strict=True)), abs=1e-5
    )
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(run / "starts/seed-1").eval()
    with torch.inference_mode():
        logits = theirs(**encoded).logits[0]
    at = [encoded["input_ids"][0].tolist().index(tokenizer.convert_tokens_to_ids(one)) for one in ADDED_MARKERS[::2]]
    summed = torch.softmax(logits[at[0], :3] + logits[at[1], 3:], dim=-1).tolist()
    assert predictor.predict([short])[0].scores == pytest.approx(dict(zip(ours.labels, summed, strict=True)), abs=1e-5)

    folds = split_folds(sentences / "train.jsonl", Relations(), 3, 0)
    assert sum(len(fold.validation[0].splitlines()) for fold in folds) == 288


def in_line(training: str) -> str:
    """Settings as part of a flow mapping."""
    return ", ".join(line.strip() for line in training.strip().splitlines())


def test_pairs_of_entities_in_a_single_text_are_drawn_themselves() -> None:
    """All resamples of one text would be equal, and the interval would have no width."""
    texts = ["<< a >> [[ b ]] c", "a << b >> [[ c ]]", "<< a >> b [[ c ]]"]
    items = [RelatedEntities(find_markers(text, MARKERS), "part-of", line) for line, text in enumerate(texts, 1)]
    test = RelationFile(Path("a.jsonl"), items, "jsonl")
    scoring = RelationScoring(Relations(metric="micro"), test)
    scoring.labels = set(CLASSES)
    found = ["part-of", "none", "part-of"]
    scoring.predictions = {"a": {"seed-1": [Relation(label, {label: 1.0}) for label in found]}}
    drawn = np.array(scoring.summary(Resampling(200, 0))["draws"]["a"])
    assert (test.unit_ids, scoring.num_units, test.unit) == (None, 3, "texts")
    assert set(drawn.round(3)) == {0.0, 0.333, 0.667, 1.0}
    assert [unit.line for unit in test.units()] == [1], "folds keep them together"
