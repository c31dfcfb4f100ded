"""Languages in packed rows: one in each row, exact counts per pass, and batches that depend on seed and step alone."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.languages import Languages
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.prepared import open_prepared
from domainbert.pretraining.batches import PackedRowsReader, TrainRows
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.languages import passes_by_language
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.phases import RowPhase
from domainbert.stages.prepare import prepare
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from tests.refusals import refused
from tests.toy_corpus import corpus_readers

DOCUMENTS = {"en": 600, "fr": 90, "sw": 12}
LENGTH, BATCH = 24, 16


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [f"{name}{number}" for name in DOCUMENTS for number in range(30)] + ["\u00e9t\u00e9"]
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *words])}
    folder = tmp_path_factory.mktemp("tokenizer")
    DomainTokenizer(bert_backend(vocab, {}), model_max_length=64).save(folder)
    return folder


def corpus(folder: Path, alpha: float | None, names: tuple[str, ...] = tuple(DOCUMENTS)) -> CorpusConfig:
    """A file a language, whose documents hold words of no other one."""
    draw, sources = random.Random(0), []
    for name in names:
        texts = [
            " ".join(f"{name}{draw.randrange(30)}" for _ in range(draw.randint(3, 60))) for _ in range(DOCUMENTS[name])
        ]
        (folder / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
        language = None if alpha is None else name
        sources.append(Source(str(folder / f"{name}.txt"), documents="line", language=language))
    languages = None if alpha is None else Languages(alpha)
    return CorpusConfig(sources, min_characters=1, validation_fraction=0.15, languages=languages)


@pytest.fixture(scope="module")
def prepared(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder / "out", corpus=corpus(folder, 0.3), tokenizer=tokenizer, num_workers=0)
    return folder / "out"


@pytest.fixture(scope="module")
def readers(prepared: Path) -> list[PackedRowsReader]:
    found = open_prepared([prepared])
    objective = MaskedLM(MaskingConfig(whole_word=True)).build(load_tokenizer(found.tokenizer_folder))
    return list(corpus_readers(found, objective, LENGTH))


def language_of_token(token: int) -> int:
    return (token - len(SPECIAL_TOKENS)) // 30


def test_a_row_holds_one_language_and_every_token_is_in_one_row(readers: list[PackedRowsReader]) -> None:
    for reader in readers:
        plan, split = reader.plan, reader.split
        assert reader.languages is not None and plan.lengths.sum() == split.num_tokens
        for row in range(plan.num_rows):
            pieces = range(plan.row_offsets[row], plan.row_offsets[row + 1])
            tokens = [split.take(int(plan.starts[p]), int(plan.starts[p] + plan.lengths[p])) for p in pieces]
            assert {language_of_token(int(token)) for token in np.concatenate(tokens)} == {
                reader.languages.row_languages[row]
            }
        assert plan.fullness > 0.85


def test_a_pass_has_the_tokens_of_each_language_in_its_share(readers: list[PackedRowsReader]) -> None:
    reader = readers[0]
    assert reader.languages is not None
    order, rows = reader.order(1, 3), reader.plan.num_rows
    tokens = np.bincount(reader.split.languages, reader.split.lengths)
    wanted = (tokens / tokens.sum()) ** 0.3 / ((tokens / tokens.sum()) ** 0.3).sum()
    passes = 40  # each begins in the middle of a pass over a language
    drawn = np.concatenate([order.batch(step)[1] for step in range(passes * rows)])
    counts = np.bincount(reader.languages.row_languages[drawn])
    assert counts.tolist() == (passes * reader.languages.draws).tolist()
    exact = wanted * reader.languages.rows / tokens
    assert np.abs(reader.languages.draws - rows * exact / exact.sum()).max() < 1, "but for rounding to whole rows"
    read = np.bincount(reader.languages.row_languages[drawn], reader.plan.text_tokens[drawn])
    assert read / read.sum() == pytest.approx(wanted, abs=1 / rows)
    assert read.sum() / passes == pytest.approx(reader.tokens_per_pass, rel=1e-3)


def test_passes_are_the_share_of_what_is_read_by_the_text_there_is(
    readers: list[PackedRowsReader], capsys: pytest.CaptureFixture[str]
) -> None:
    """q_i T / n_i, where T is the number of tokens that are read."""
    reader = readers[0]
    budget = 3 * reader.plan.num_rows
    facts, warnings = passes_by_language([phase(reader, budget)])
    for one in facts["languages"].values():
        expected = one["share_read"] * 3 * reader.tokens_per_pass / one["tokens"]
        assert one["passes"] == pytest.approx(expected, rel=0.02)
    assert sum(one["passes"] * one["tokens"] for one in facts["languages"].values()) == pytest.approx(
        3 * reader.tokens_per_pass
    )
    often = [name for name, one in facts["languages"].items() if one["passes"] > 10]
    assert often == ["sw"] and len(warnings) == 1
    assert warnings[0].startswith(f"language 'sw': its text is read {facts['languages']['sw']['passes']:.1f} times")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3 and printed[0].startswith("language en: ") and printed[0].endswith(" passes")
    assert passes_by_language([phase(reader, reader.plan.num_rows // 10)])[1] == []
    halves, _ = passes_by_language([phase(reader, budget // 2), phase(reader, budget - budget // 2)])
    for name, one in halves["languages"].items():
        assert one["passes"] == pytest.approx(facts["languages"][name]["passes"]), "over all phases"


def phase(reader: PackedRowsReader, rows: int) -> RowPhase:
    """A phase of steps of one row."""
    return RowPhase(range(rows), reader, reader.order(1, 0))


def digest(reader: PackedRowsReader, world_size: int, accumulation: int, first: int = 0) -> str:
    """SHA-256 of tokens and targets of the steps from `first` to 40, each row at its place in the global batch."""
    found = {name: np.zeros((40, BATCH, LENGTH), np.int64) for name in ("input_ids", "segment_ids")}
    for rank in range(world_size):
        share = Share(rank, world_size, accumulation)
        rows = TrainRows(reader, reader.order(BATCH, 7), share, range(first, 40))
        for index in range(len(rows)):
            batch = rows[index]
            for name, values in found.items():
                values[batch["step"], share.select(np.arange(BATCH), batch["micro_batch"])] = batch[name]
    return hashlib.sha256(b"".join(values[first:].tobytes() for values in found.values())).hexdigest()


@pytest.mark.parametrize(("world_size", "accumulation"), [(2, 1), (4, 1), (1, 4), (2, 2)])
def test_batches_are_the_same_however_they_are_shared_out(
    readers: list[PackedRowsReader], world_size: int, accumulation: int
) -> None:
    assert digest(readers[0], world_size, accumulation) == digest(readers[0], 1, 1)
    assert digest(readers[0], world_size, accumulation, first=17) == digest(readers[0], 1, 1, first=17)


def test_a_row_that_comes_again_has_other_tokens_hidden(readers: list[PackedRowsReader]) -> None:
    reader = readers[0]
    assert reader.languages is not None
    order, rows = reader.order(BATCH, 7), TrainRows(reader, reader.order(BATCH, 7), Share(), range(40))
    seen: dict[int, list[bytes]] = {}
    for step in range(40):
        batch, (_, numbers) = rows[step], order.batch(step)
        for place, number in enumerate(numbers.tolist()):
            if reader.languages.row_languages[number] == 2 and reader.plan.text_tokens[number] > 15:
                seen.setdefault(number, []).append(batch["input_ids"][place].tobytes())
    assert min(map(len, seen.values())) >= 4 and reader.plan.num_rows > 40 * BATCH, "within one pass over all"
    assert all(len(set(hidden)) > 0.7 * len(hidden) for hidden in seen.values())


def test_the_rows_of_validation_are_those_of_its_languages(readers: list[PackedRowsReader]) -> None:
    reader = readers[1]
    parts = reader.by_language()
    assert list(parts) == list(DOCUMENTS)
    assert sorted(np.concatenate([part.rows for part in parts.values()]).tolist()) == list(range(reader.plan.num_rows))
    assert all(part.plan is reader.plan for part in parts.values())
    densities = [reader.split.tokens_per_character_of(name) for name in DOCUMENTS]
    assert min(densities) < reader.split.tokens_per_character < max(densities)


def test_folders_together_have_the_shares_of_all_their_text(tokenizer: Path, readers, tmp_path: Path) -> None:
    parts = []
    for names in (("en", "sw"), ("fr",)):
        (folder := tmp_path / "-".join(names)).mkdir()
        prepare(folder / "out", corpus=corpus(folder, 0.3, names), tokenizer=tokenizer, num_workers=0)
        parts.append(folder / "out")
    split = open_prepared(parts).train
    assert split.sampling is not None and split.sampling.names == ["en", "fr", "sw"]
    for number in range(0, split.num_documents, 20):
        assert {language_of_token(int(token)) for token in split.document(number)} == {split.languages[number]}
    both = PackedRowsReader(split, readers[0].objective, LENGTH)
    assert both.languages is not None and both.languages.tokens.sum() == split.num_tokens

    prepare(tmp_path / "other", corpus=corpus(tmp_path, 0.5), tokenizer=tokenizer, num_workers=0)
    prepare(tmp_path / "none", corpus=corpus(tmp_path, None), tokenizer=tokenizer, num_workers=0)
    with refused(file="other", problem="has corpus.languages.alpha 0.5", expected="0.3, as in ...en-sw..."):
        open_prepared([parts[0], tmp_path / "other"])
    with refused(file="none", problem="has corpus.languages.alpha null", expected="0.3..."):
        open_prepared([parts[0], tmp_path / "none"])
    plain = open_prepared([tmp_path / "none"]).train
    reader = PackedRowsReader(plain, readers[0].objective, LENGTH)
    assert type(reader.order(4, 0)) is GlobalOrder and reader.tokens_per_pass == plain.num_tokens
    assert passes_by_language([phase(reader, 10**6)]) == ({}, []) and reader.by_language() == {}


def test_an_objective_that_mixes_languages_in_a_row_is_refused(readers: list[PackedRowsReader]) -> None:
    from domainbert.pretraining.languages import RowLanguages

    split, objective = readers[0].split, readers[0].objective
    mixed = type(split)(split.files, split.sampling)
    mixed.languages = None
    plan = objective.layout_rows(mixed, LENGTH)
    with refused(found="...with languages; the objective would put several..."):
        RowLanguages.of(split, plan)
