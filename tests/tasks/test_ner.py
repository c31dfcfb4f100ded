from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.examples import encode_words
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.crf import word_marginals
from domainbert.encoders.packed import Packed
from domainbert.labelled.entities import Sentence
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.items import label_set
from domainbert.labelled.tag_schemes import labels_of_types, to_iob2
from domainbert.tasks.decoding import decode_labels, decode_words, uniform_crf
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.ner.tagger import Tagger
from domainbert.tasks.ner.task import CrfNerTask, NerTask
from domainbert.tasks.source_batches import Sources
from domainbert.tasks.task import read_task
from domainbert.tasks.word_task import TaggedWords
from domainbert.tokenization.align import align_words
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from tests.ready_made import ReadyFineTuning
from tests.refusals import refused

LABELS = ("O", "B-cell", "I-cell", "B-B-part", "I-B-part")


def make_sentence(words, tags) -> Sentence:
    return Sentence(tuple(words), tuple(tags), line=1, document=0)


def batch_of(examples, tokenizer, max_tokens=10_000):
    batches = LabelledBatches(examples, tokenizer, max_tokens, Share())
    for index in range(len(batches)):
        yield {name: torch.from_numpy(value) for name, value in batches[index].items()}


def test_encoded_labels_go_on_inside_a_word(tokenizer):
    sentence = make_sentence(["a", "men's", "men's", "men's"], ["O", "B-cell", "I-cell", "B-B-part"])
    (example,) = NerTask(LABELS).encode([sentence], tokenizer, 32)
    (window,) = example.windows
    assert [LABELS[i] for i in window.targets] == ["O", "B-cell", "I-cell", "I-cell", "I-cell", "I-cell", "I-cell",
                                                   "B-B-part", "I-B-part", "I-B-part"]  # fmt: skip
    assert window.outputs.tolist() == [0, 1, -1, -1, 2, -1, -1, 3, -1, -1]


def test_labels_that_a_model_of_another_library_lacks(tokenizer):
    """Trained on IOB1, it has no B-cell; if all entities of a type have one word, no I-part."""
    labels = ("O", "I-cell", "B-part")
    sentence = make_sentence(["a", "men's", "rates", "men's", "a"], ["O", "B-cell", "I-cell", "B-part", "I-part"])
    targets = ["O", "I-cell", "I-cell", "I-cell", "I-cell", "B-part", "B-part", "B-part", "B-part"]
    (example,) = NerTask(labels).encode([sentence], tokenizer, 32)
    assert [labels[target] for target in example.windows[0].targets] == targets
    (example,) = NerTask(labels).encode_aligned(align_words(tokenizer, [sentence.words]), 32)
    assert example.windows[0].outputs.tolist() == [0, 1, -1, -1, 2, 3, -1, -1, 4]


def test_loss_is_numpys(tokenizer):
    sentences = [make_sentence(["a", "rates", "b"], ["O", "B-cell", "I-cell"]), make_sentence(["men's"], ["B-B-part"])]
    examples = NerTask(LABELS).encode(sentences, tokenizer, 32)
    (batch,) = batch_of(examples, tokenizer)
    logits = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    targets = batch["targets"].numpy()
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    wanted = -log_probabilities[np.arange(6), targets].sum() / 60
    found = NerTask(LABELS).loss(torch.from_numpy(logits), batch) / 60
    assert float(found) == pytest.approx(wanted, rel=1e-6)
    ignoring = batch | {
        "num_targets": 60,
        "targets": batch["targets"].clone().index_fill_(0, torch.tensor([2]), IGNORE_INDEX),
    }
    wanted += log_probabilities[2, targets[2]] / 60
    assert float(NerTask(LABELS).loss(torch.from_numpy(logits), ignoring)) / 60 == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("max_length", [8, 13, 512])
def test_predictions_of_windows_merge_to_one_label_a_word(tokenizer, max_length):
    """A model that labels a piece by its id labels every word by its first piece, however long the input."""
    generator = np.random.default_rng(1)
    vocabulary = ["men's", "rates", "bank", "a", "b", "\x00", "banks's"]
    sentences = [generator.choice(vocabulary, size).tolist() for size in (40, 1, 7, 120, 3)]
    aligned = align_words(tokenizer, sentences)
    examples = encode_words(aligned, None, LABELS, max_length)
    assert (max(len(example.windows) for example in examples) > 1) == (max_length < 512)
    seen = 0
    for batch in batch_of(examples, tokenizer, max_tokens=64):
        ids = batch["input_ids"].flatten()[batch["positions"]]
        logits = torch.nn.functional.one_hot(ids % 5, 5) * 4.0
        decoded = decode_words(logits, batch)
        assert len(decoded) == len(batch["items"])
        for item, (labels, scores) in zip(batch["items"].tolist(), decoded, strict=True):
            first = np.asarray(aligned[item].input_ids)[aligned[item].first_piece]
            assert labels.tolist() == (first % 5).tolist() and len(labels) == len(sentences[item])
            assert scores == pytest.approx(np.exp(4) / (np.exp(4) + 4))
            seen += 1
    assert seen == len(sentences)


def test_a_linear_head_is_decoded_into_the_most_probable_valid_tags(tokenizer):
    """Against all tag sequences of each sentence, read in windows; where the best tags are valid they stay."""
    generator = np.random.default_rng(5)
    sentences = [generator.choice(["men's", "rates", "a"], size).tolist() for size in (1, 5, 2, 4, 3, 5, 1, 4)]
    examples = encode_words(align_words(tokenizer, sentences), None, LABELS, 9)
    assert max(len(example.windows) for example in examples) > 1
    kept = changed = 0
    for batch in batch_of(examples, tokenizer, max_tokens=40):
        logits = torch.from_numpy(generator.normal(size=(len(batch["positions"]), 5)))
        plain, decoded = decode_labels(logits, batch), decode_labels(logits, batch, valid=uniform_crf(LABELS))
        log_probabilities = torch.log_softmax(logits, dim=-1).numpy()
        for number, item in enumerate(batch["items"].tolist()):
            mine = (batch["example"] == number).numpy() & (batch["outputs"] >= 0).numpy()
            words = log_probabilities[mine][np.argsort(batch["outputs"].numpy()[mine])]
            assert len(words) == len(sentences[item])
            tags = [path for path in product(range(5), repeat=len(words)) if is_iob2([LABELS[i] for i in path])]
            best = max(tags, key=lambda path: sum(word[label] for word, label in zip(words, path, strict=True)))
            assert tuple(decoded[number].tolist()) == best
            valid_already = is_iob2([LABELS[i] for i in plain[number]])
            kept, changed = kept + valid_already, changed + (not valid_already)
            assert (plain[number].tolist() == decoded[number].tolist()) == valid_already
    assert kept >= 2 and changed >= 2


@pytest.mark.parametrize("kind", [NerTask, CrfNerTask])
def test_entities_less_probable_than_the_min_score_are_omitted(tokenizer, make_model, kind):
    """The words of an omitted entity have O and its probability; everything else stays."""
    generator = np.random.default_rng(7)
    sentences = [generator.choice(["men's", "rates", "a"], size).tolist() for size in (1, 6, 0, 2, 9, 5)]
    examples = encode_words(align_words(tokenizer, sentences), None, LABELS, 9)
    fields_of_folder = {"domainbert_tags": "IOB2", "domainbert_head": kind.head, "domainbert_min_score": 0.45}
    task, cautious = kind(LABELS), kind.from_model_folder(LABELS, fields_of_folder)
    assert type(cautious) is kind and (task.min_score, cautious.min_score) == (0.0, 0.45)
    if kind is CrfNerTask:
        head = make_model("crf", 5).head
        torch.nn.init.normal_(head.crf.transitions, generator=torch.Generator().manual_seed(1))
        for one in (task, cautious):
            one.attach_head(head)
    kept = omitted = 0
    for batch in batch_of(examples, tokenizer):
        logits = torch.from_numpy(2 * generator.normal(size=(len(batch["positions"]), 5))).float()
        fields = batch["example"], batch["outputs"]
        outside = word_marginals(task.decoding_crf, logits, *fields).exp()[:, 0]
        for number, (all_tagged, tagged) in enumerate(
            zip(task.decode(logits, batch), cautious.decode(logits, batch), strict=True)
        ):
            mine = (batch["example"] == number) & (batch["outputs"] >= 0)
            probability_of_o = outside[mine][batch["outputs"][mine].argsort()].tolist()
            expected = [
                (tag, score) if tag == "O" or score >= 0.45 else ("O", pytest.approx(of_o, abs=1e-5))
                for tag, score, of_o in zip(*all_tagged, probability_of_o, strict=True)
            ]
            assert list(zip(*tagged, strict=True)) == expected
            kept += sum(tag != "O" for tag in tagged.tags)
            omitted += sum(tag != "O" for tag in all_tagged.tags)
    assert 0 < kept < omitted


@pytest.mark.parametrize("found", [1, -0.1, "0.5", True])
def test_a_min_score_that_is_no_probability_is_refused(found):
    with refused(where="domainbert_min_score", found=repr(found), expected="a number from 0 to below 1"):
        NerTask.from_model_folder(LABELS, {"domainbert_min_score": found})


@pytest.mark.parametrize("word", ["", " "])
def test_a_word_without_characters_is_no_entity(word):
    offsets, tagged = [(0, 4), (5, 5 + len(word))], TaggedWords(["B-PER", "B-ORG"], [0.9, 0.9])
    assert [entity.text for entity in Tagger.build(None, f"Anna {word}", offsets, tagged)] == ["Anna"]


def is_iob2(tags: list[str]) -> bool:
    return to_iob2(tags) == tags


def test_a_long_sentence_has_several_windows(tokenizer):
    example = encode_words(align_words(tokenizer, [["a"] * 20]), None, LABELS, 8)[0]
    assert [len(window.input_ids) for window in example.windows] == [6] * 6
    assert [len(window.outputs) for window in example.windows] == [5, 3, 3, 3, 2, 4]


def test_validation_scores_words_of_the_file(tokenizer, make_model, monkeypatch):
    """With gold labels at the pieces that decide, and nonsense elsewhere, F1 is 1; one wrong word costs one entity."""
    sentences = [
        make_sentence(["men's", "a", "rates", "b"], ["B-cell", "O", "B-B-part", "I-B-part"]),
        make_sentence(["\x00", "a"], ["B-cell", "I-cell"]),
        make_sentence(["a"] * 30, ["O", "B-cell", "I-cell"] * 10),
    ]
    task = NerTask(LABELS)
    module = ReadyFineTuning(make_model("tokens", 5), task)
    logged = {}
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: value}))
    state = SimpleNamespace(fn="validate")
    module.trainer = SimpleNamespace(state=state, global_step=0, sanity_checking=False)

    def validate(last_label):
        """The scores when all words but the last of sentence 2 get their gold label."""

        def answer(batch):
            labels = torch.where(batch["outputs"] >= 0, batch["targets"], (batch["targets"] + 1) % 5)
            last = (batch["items"][batch["example"]] == 2) & (batch["outputs"] == 29)
            return torch.nn.functional.one_hot(labels.masked_fill(last, last_label), 5).float()

        monkeypatch.setattr(module, "forward", answer)
        module.on_validation_epoch_start()
        for batch in batch_of(task.encode(sentences, tokenizer, 12), tokenizer, max_tokens=40):
            items = [sentences[item] for item in batch["items"].tolist()]
            module.validation_step(batch | {"sources": Sources(items)}, 0)
        module.on_validation_epoch_end()
        return {name.removeprefix("validation/"): value for name, value in logged.items()}

    perfect = validate(last_label=2)
    assert perfect["f1"] == perfect["macro_f1"] == 1.0
    wrong = validate(last_label=0)  # 13 gold, 13 predicted, 12 right; and nothing is left of the validation before
    assert wrong["f1"] == wrong["precision"] == wrong["recall"] == pytest.approx(12 / 13)


def test_every_gold_entity_of_econ_ie_is_scored(econ_data):
    """In short windows, with many pieces per word, the entities found equal the entities of the file."""
    file = read_ner(econ_data / "ner/test.conll", NerFormat(repair=True))
    letters = sorted({letter for sentence in file.sentences for word in sentence.words for letter in word.lower()})
    pieces = dict.fromkeys([*SPECIAL_TOKENS.values(), *letters, *(f"##{letter}" for letter in letters)])
    tokenizer = DomainTokenizer(bert_backend({piece: number for number, piece in enumerate(pieces)}, {}))
    task = NerTask(labels_of_types(label_set(file.sentences)))
    examples = task.encode(file.sentences, tokenizer, 64)
    assert max(len(example.windows) for example in examples) > 5
    metric = task.metric()
    for batch in batch_of(examples, tokenizer, max_tokens=50_000):
        logits = torch.nn.functional.one_hot(batch["targets"], len(task.labels)).float()
        task.update(metric, logits, batch, [file.sentences[item] for item in batch["items"].tolist()])
    assert metric.counts[0].sum(dim=0).tolist() == [4_956, 0, 0]


def test_a_training_set_without_entities_is_refused(tmp_path):
    path = tmp_path / "train.conll"
    path.write_text("A\tNN\tO\tB-x\n")
    with refused(file="train.conll", problem="no entities"):
        read_task(Ner(format=NerFormat(tag_column=2)), path, path)


def test_files_give_the_labels_of_training(tmp_path, capsys):
    train, validation = tmp_path / "train.conll", tmp_path / "validation.conll"
    train.write_text("the O\nbank B-org\nrate B-B-x\n\nmen I-org\n".replace("I-org", "B-org"))
    validation.write_text("bank B-org\nrose B-person\n")
    task = read_task(Ner(head="linear"), train, train)[2]
    assert sorted(task.labels) == ["B-B-x", "B-org", "I-B-x", "I-org", "O"] and task.labels[0] == "O"
    assert [read_task(Ner(head=head), train, train)[2].head for head in ("linear", "crf")] == ["tokens", "crf"]
    assert "train.conll" in capsys.readouterr().out
    with refused(problem="...person..."):
        read_task(Ner(), train, validation)


def test_a_random_field_reads_sentences_wherever_they_are_packed(tokenizer, make_model):
    """Loss and tags of packed sentences equal the results of single sentences; each word gets one valid tag."""
    generator = np.random.default_rng(3)
    sizes = (1, 7, 30, 4)
    sentences = [
        make_sentence(generator.choice(["a", "men's", "rates"], n), ["O", *["B-cell", "I-cell"] * n][:n]) for n in sizes
    ]
    task = CrfNerTask(LABELS)
    model = make_model("crf", 5).eval()
    task.attach_head(model.head)
    with torch.no_grad():
        for parameter in model.head.crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    examples = task.encode(sentences, tokenizer, 12)

    def judge(chosen):
        (batch,) = batch_of(chosen, tokenizer)
        inputs = Packed.of(batch), batch["positions"]
        with torch.inference_mode():
            logits = model(*inputs)
            decoded = decode_words(logits, batch, task.crf)
        return float(task.loss(logits, batch)), dict(zip(batch["items"].tolist(), decoded, strict=True))

    total, together = judge(examples)
    alone = [judge([example]) for example in examples]
    assert total == pytest.approx(sum(loss for loss, _ in alone), rel=1e-5)
    for number, (_, decoded) in enumerate(alone):
        assert together[number][0].tolist() == decoded[0][0].tolist() and len(decoded[0][0]) == sizes[number]
        assert together[number][1] == pytest.approx(decoded[0][1], abs=1e-5)
        tags = [LABELS[label] for label in decoded[0][0]]
        assert to_iob2(tags) == tags
