"""Questions with windows of their contexts: inputs and targets, and the best spans."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.labelled.contents import TextPair
from domainbert.tasks.question_answering.config import QuestionAnswering
from domainbert.tasks.question_answering.files import Answer, Question
from domainbert.tasks.question_answering.task import QuestionAnsweringTask
from domainbert.tasks.question_answering.windows import (
    CHAR_END,
    ENDS,
    FIRST_CHAR,
    STARTS,
    best_spans,
    context_pieces,
    log_probabilities,
    window_indices,
)
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.refusals import refused


def question(context: str, answer: str | None, text: str = "rate ?", own: str = "q") -> Question:
    answers = () if answer is None else (Answer(answer, context.index(answer)),)
    return Question(own, text, context, answers, 1)


def task(**limits: int) -> QuestionAnsweringTask:
    return QuestionAnsweringTask(QuestionAnswering(**limits))


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
@pytest.mark.parametrize(
    "context",
    [
        "Cafe\u0301 au lait, naïve  façade\tÀ Zürich.",
        "東京は日本の首都です。 Tokyo",
        "a 👩‍🔬 lab 🍰🍰 cake ",
        " \n leading  white   space \u00a0 there",
        "\ufeffmixed\u200bzero width, don't!",
    ],
)
def test_pieces_cover_the_characters_of_their_context(vocabularies: Any, kind: str, context: str) -> None:
    """Each visible character is in a piece that can be read, in order, so that any answer can be named exactly."""
    (pieces,) = context_pieces(vocabularies[kind], [context])
    covered = pieces.characters[pieces.visible]
    assert (covered[:, 0] < covered[:, 1]).all() and (np.diff(covered, axis=0) >= 0).all()
    inside = {place for start, end in covered.tolist() for place in range(start, end)}
    words = [found.span() for found in re.finditer(r"\w+", context)]
    assert {place for span in words for place in range(*span)} <= inside
    for start, end in covered.tolist():
        assert not context[start].isspace() and not context[end - 1].isspace()


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: Any) -> dict[str, DomainTokenizer]:
    from domainbert.stages.vocab import vocab

    folder = tmp_path_factory.mktemp("vocabularies")
    texts = [
        "Café au lait, naïve façade à Zürich.",
        "東京は日本の首都です。",
        "a lab cake",
        "leading white space there",
    ]
    texts += ["mixed zero width don't 👩‍🔬🍰"]
    draw = random.Random(0)
    texts += ["".join(draw.choices("abcdeilmnorstu", k=draw.randint(2, 9))) for _ in range(400)]
    (folder / "corpus.txt").write_text("\n\n".join(texts * 20))
    found = {}
    for kind in ("wordpiece", "byte_bpe", "unigram"):
        vocab(out=folder / kind, corpus=str(folder / "corpus.txt"), vocab_size=448, kind=kind)
        found[kind] = load_tokenizer(folder / kind)
    return found


def test_windows_hold_the_question_and_know_where_the_answer_is(tokenizer: DomainTokenizer) -> None:
    context = "a b c d e f g h rates a b c d e f g h"
    (example,) = task(max_question_length=4).encode([question(context, "rates")], tokenizer, 13)
    ids = tokenizer.encode([context])[0]
    assert len(ids) == 18 and example.num_outputs == 19
    assert [len(window.input_ids) for window in example.windows] == [8, 8, 8, 8]
    assert [window.num_tokens for window in example.windows] == [13] * 4
    starts = [0, 4, 8, 10]
    for start, window in zip(starts, example.windows, strict=True):
        assert window.first is not None and tokenizer.tokens[window.first[0]] == "rate" and len(window.first) == 2
        assert window.input_ids.tolist() == ids[start : start + 8]
        assert window.positions.tolist() == [-1, *range(3, 11)]
        assert window.outputs.tolist() == [0, *range(start + 1, start + 9)]
        covered = [context[a:b] for a, b in window.targets[1:, [FIRST_CHAR, CHAR_END]].tolist()]
        assert covered == [*"abcdefgh", "rate", "s", *"abcdefgh"][start : start + 8]
        marks = window.targets[:, [STARTS, ENDS]]
        if start in (4, 8):  # "rate" and "##s" are pieces 8 and 9
            assert np.argwhere(marks == 1).tolist() == [[9 - start, 0], [10 - start, 1]]
        else:
            assert np.argwhere(marks == 1).tolist() == [[0, 0], [0, 1]]
    (bare,) = task(max_question_length=4).encode([question(context, None)], tokenizer, 13)
    assert all(np.argwhere(window.targets[:, :2] == 1).tolist() == [[0, 0], [0, 1]] for window in bare.windows)
    (unknown,) = task(max_question_length=4).encode_contents([TextPair("rate ?", context)], tokenizer, 13)
    assert all((window.targets[:, :2] == IGNORE_INDEX).all() for window in unknown.windows)
    assert [window.targets[:, 2:].tolist() for window in unknown.windows] == [
        window.targets[:, 2:].tolist() for window in example.windows
    ]


def test_the_answers_of_collated_batches_are_those_of_the_file(tokenizer: DomainTokenizer) -> None:
    """Through packing: at the positions of start and end stand the pieces of the answer."""
    draw = random.Random(0)
    items = []
    for number in range(40):
        words = [draw.choice(["a", "b", "rates", "men's", "bank"]) for _ in range(draw.randint(1, 40))]
        first = draw.randrange(len(words))
        answer = " ".join(words[first : first + draw.randint(1, 4)])
        start = len(" ".join(words[:first])) + bool(first)
        items.append(Question(str(number), "bank ?", " ".join(words), (Answer(answer, start),), 1))
    examples = task(max_question_length=4).encode(items, tokenizer, 20)
    for batch in (LabelledBatches(examples, tokenizer, 300, Share())[n] for n in range(3)):
        window = window_indices(torch.from_numpy(batch["outputs"])).numpy()
        flat = batch["input_ids"].flatten()
        for number in range(window.max() + 1):
            at = np.flatnonzero(window == number)
            item = items[batch["items"][batch["example"][at[0]]]]
            assert flat[batch["positions"][at[0]]] == tokenizer.cls_id and len(set(batch["example"][at].tolist())) == 1
            (start,), (end,) = (at[batch["targets"][at, column] == 1] for column in (STARTS, ENDS))
            if start != at[0]:
                pieces = flat[batch["positions"][start : end + 1]].tolist()
                assert pieces == tokenizer.encode([item.texts[0]])[0]
                span = slice(int(batch["targets"][start, FIRST_CHAR]), int(batch["targets"][end, CHAR_END]))
                assert item.context[span] == item.texts[0]
            else:
                assert end == start


def test_long_questions_and_answers_are_told(tokenizer: DomainTokenizer, capsys: Any) -> None:
    short = task(max_question_length=3)
    items = [question("a b c", "b", "a b c d e"), question("a b c d e f g h", "a b c d e f", "a", "r")]
    examples = short.encode(items, tokenizer, 9)
    assert examples[0].windows[0].first is not None and len(examples[0].windows[0].first) == 3
    said = capsys.readouterr().out
    assert "1 questions are truncated to 3 pieces (max_question_length); the longest has 5" in said
    assert "questions with an answer that fits in no window of 9 tokens: 1 of 2, trained as unanswerable" in said
    short.encode(items[:1], tokenizer, 9)
    assert capsys.readouterr().out == "", "each question is reported once"
    with refused(where="max_length", found="9, ... after a question of max_question_length 64 and 3 special tokens"):
        task().encode(items, tokenizer, 9)
    with refused(where="text 1", found="'a text'", expected="TextPair(question, context)"):
        task().encode_contents(["a text"], tokenizer, 80)


def one_batch(tokenizer: DomainTokenizer, items: list[Question], max_length: int) -> dict[str, Any]:
    examples = task(max_question_length=4).encode(items, tokenizer, max_length)
    batches = LabelledBatches(examples, tokenizer, 100_000, Share())
    assert len(batches) == 1
    return {name: torch.from_numpy(values) for name, values in batches[0].items()}


def test_the_loss_is_that_of_each_window_by_itself(tokenizer: DomainTokenizer) -> None:
    """As `transformers` has it, but among the positions of [CLS] and context alone."""
    items = [question("a b c d e f g h rates a b", "rates"), question("a b", None), question("bank a b", "bank a")]
    batch = one_batch(tokenizer, items, 13)
    logits = torch.randn(len(batch["outputs"]), 2, generator=torch.Generator().manual_seed(0)) * 3
    window = window_indices(batch["outputs"])
    wanted = 0.0
    for number in range(int(window.max()) + 1):
        here = window == number
        for column in (STARTS, ENDS):
            target = (batch["targets"][here, column] == 1).nonzero()[0]
            wanted += float(torch.nn.functional.cross_entropy(logits[here, column][None], target)) / 2
    assert int(window.max()) + 1 == 4
    assert float(task().loss(logits, batch)) == pytest.approx(wanted, rel=1e-6)
    big = log_probabilities(logits * 1e4, window)
    assert bool(big.isfinite().all()) and float(big[window == 0].exp().sum(0)[0]) == pytest.approx(1)
    leaf = logits.clone().requires_grad_()
    task().loss(leaf, batch).backward()
    assert leaf.grad is not None
    sums = torch.zeros(4, 2).index_add(0, window, leaf.grad)
    torch.testing.assert_close(sums, torch.zeros(4, 2), atol=1e-6, rtol=0)
    unknown = dict(batch, targets=torch.full_like(batch["targets"], IGNORE_INDEX))
    assert float(task().loss(logits, unknown)) == 0


def brute_force(logits: np.ndarray, batch: dict[str, Any], longest: int) -> dict[int, tuple[float, list[Any]]]:
    """Score every span of every window; a span in several windows counts in the one with the most context."""
    found: dict[int, tuple[float, list[Any]]] = {}
    window = window_indices(batch["outputs"]).numpy()
    for example in range(len(batch["items"])):
        best: dict[tuple[int, int], tuple[int, float, tuple[int, int]]] = {}
        null = np.inf
        for number in np.unique(window[batch["example"].numpy() == example]):
            at = np.flatnonzero(window == number)
            null = min(null, logits[at[0]].sum())
            outputs, chars = batch["outputs"][at].tolist(), batch["targets"][at].numpy()
            for i, j in itertools.product(range(1, len(at)), repeat=2):
                if i <= j < i + longest:
                    context = min(i - 1, len(at) - 1 - j)
                    span = outputs[i], outputs[j]
                    score = logits[at[i], 0] + logits[at[j], 1]
                    if span not in best or context > best[span][0] or (context == best[span][0] and number > 0):
                        best[span] = context, score, (chars[i, FIRST_CHAR], chars[j, CHAR_END])
        ordered = sorted(best.values(), key=lambda one: -one[1])
        found[int(batch["items"][example])] = null, [(score, tuple(chars)) for _, score, chars in ordered]
    return found


@pytest.mark.parametrize(("longest", "most"), [(1, 5), (4, 3), (30, 1000)])
def test_the_best_spans_are_those_of_all(tokenizer: DomainTokenizer, longest: int, most: int) -> None:
    texts = ["a b c d e f g h rates a b c d e f g h bank men's rates", "a", "a b c d e f", "rates bank " * 9]
    batch = one_batch(tokenizer, [question(text, None, own=text) for text in texts], 13)
    logits = np.random.default_rng(0).normal(size=(len(batch["outputs"]), 2))
    wanted = brute_force(logits, batch, longest)
    for item, spans in zip(
        batch["items"].tolist(), best_spans(torch.from_numpy(logits), batch, longest, most), strict=True
    ):
        null, everything = wanted[item]
        assert spans.null_score == pytest.approx(null)
        whole = everything[:most]
        # a span longer than half a window may be whole in the window with less context alone: it is never lost there
        assert spans.scores.tolist() == pytest.approx([score for score, _ in whole])
        assert [tuple(one) for one in spans.characters.tolist()] == [chars for _, chars in whole]
        assert spans.margin == pytest.approx(null - whole[0][0])


def test_logits_that_are_no_numbers_break_nothing(tokenizer: DomainTokenizer) -> None:
    batch = one_batch(tokenizer, [question("a b c", "b")], 13)
    (spans,) = best_spans(torch.full((4, 2), torch.nan), batch, 30, 20)
    assert len(spans.scores) == 6 and np.isnan(spans.scores).all()


def test_settings_of_a_folder() -> None:
    kept = QuestionAnsweringTask(QuestionAnswering(max_answer_length=7)).model_config_fields(
        {"f1": 0.5, "threshold": -1.25}
    )
    again = QuestionAnsweringTask.from_model_folder((), kept)
    assert again.threshold == -1.25 and again.config == QuestionAnswering(max_answer_length=7)
    assert QuestionAnsweringTask.from_model_folder((), task().model_config_fields({"f1": 0.5})).threshold is None
    assert QuestionAnsweringTask.from_model_folder((), {}).config == QuestionAnswering()
    for wrong in (
        {"domainbert_answers": {"threshold": "x"}},
        {"domainbert_answers": {"threshold": True}},
        {"domainbert_answers": [1]},
        {"domainbert_answers": {"a": 1}},
    ):
        with refused(where="domainbert_answers", expected="at most the keys..."):
            QuestionAnsweringTask.from_model_folder((), wrong)
    assert QuestionAnsweringTask.from_model_folder((), {"domainbert_answers": {"threshold": 0}}).threshold == 0
    with refused(where="n_best", found="0", expected="an integer from 1..."):
        QuestionAnsweringTask.from_model_folder((), {"domainbert_answers": {"n_best": 0}})


def test_a_training_that_came_to_nothing_is_told() -> None:
    items = [question("a b", answer) for answer in ("a", None, None, None)]
    (warning,) = QuestionAnsweringTask.training_hooks.warnings(task(), items, {"f1": 0.76})
    assert "F1 76.0 on validation, while never answering gets 75.0" in warning
    assert (
        QuestionAnsweringTask.training_hooks.warnings(task(), items, {"f1": 0.8})
        == []
        == QuestionAnsweringTask.training_hooks.warnings(task(), items[1:], {"f1": 1.0})
    )
