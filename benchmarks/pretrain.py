"""Pretraining: domainbert against `transformers.Trainer`, the same model on the same corpus.

    python benchmarks/pretrain.py [--encoder small] [--length 128] [--tokens 8192] [--rounds 5] [--steps 5]
    python benchmarks/pretrain.py --encoder electra-small --objective replaced_tokens

`--encoder` is a name from configs/encoders, of any family. transformers has no training by replaced tokens: its users
join its generator and discriminator in a module of their own, and so does this.
What is measured is training as a user runs it: batches made, masked, trained on, logged; without padding and special
tokens in the count. Compilation and the first steps come before.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prepared_corpus import CACHE, prepared_corpus
from pretraining import LEARNING_RATE, OBJECTIVES, SEED, WARMUP_STEPS, Settings, facts_of_training, named_encoder, train
from side_by_side import Measurement, Rounds, Side, Turns, has_gpu, measure, num_cores, report, summarise

from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens

if TYPE_CHECKING:
    import datasets
    from transformers import TrainingArguments

    from domainbert.encoders.config import EncoderConfig

_LARGE = 768  # width from which on a step takes half the tokens, so that three sides fit in 24 GiB
# Compiling comes with the first steps of the warm-up, allocating with the second. With the smaller encoders a Trainer
# goes on getting faster for some two minutes.
_WARM_UP_AND_STEPS = {0: (30, 5), 384: (15, 2), _LARGE: (4, 2)}  # by width
_WORKERS_ON_GPU = 4
_PACKAGES = ("domainbert", "torch", "lightning", "transformers", "accelerate", "datasets", "numpy")


def train_domainbert(turns: Turns, settings: Settings) -> dict[str, Any]:
    """The work of the stage `pretrain` by default; on a GPU with `compile: true`."""
    return train(settings, turns.num_units, turns.done, CACHE / "domainbert", num_workers=None)


def train_by_defaults(turns: Turns, settings: Settings) -> dict[str, Any]:
    """`transformers.Trainer` as it comes: only what to train, and how long, is said."""
    return _train_transformers(turns, settings, {})


def train_at_best(turns: Turns, settings: Settings) -> dict[str, Any]:
    """`transformers.Trainer` with all that its documentation recommends for speed."""
    from domainbert.training.precision import autocast_dtype

    arguments = {
        "bf16": autocast_dtype("auto") is not None,
        "optim": "adamw_torch_fused",
        "torch_compile": True,
        "dataloader_num_workers": _WORKERS_ON_GPU if has_gpu() else 0,
        "remove_unused_columns": False,  # keeps special_tokens_mask, which the collator's docstring asks for
    }
    return _train_transformers(turns, settings, arguments)


def _train_transformers(turns: Turns, settings: Settings, arguments: dict[str, Any]) -> dict[str, Any]:
    import torch
    import transformers

    losses: list[torch.Tensor] = []
    amounts: list[torch.Tensor] = []
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings.prepared / "tokenizer")
    specials = torch.tensor(tokenizer.all_special_ids)

    class CountingTrainer(transformers.Trainer):
        def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
            ids = torch.where(inputs["labels"] == -100, inputs["input_ids"], inputs["labels"])  # before masking
            amounts.append(torch.isin(ids, specials.to(ids.device), invert=True).sum())
            losses.append(super().training_step(model, inputs, num_items_in_batch).detach())
            return losses[-1]

    class TakeTurns(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            turns.done(int(amounts[-1]))

    transformers.set_seed(SEED)
    config = _their_config(settings.config(), tokenizer)
    masks: dict[str, float] = {}
    if isinstance(settings.objective, MaskedLM):
        model = transformers.AutoModelForMaskedLM.from_config(config)  # with SDPA, where it has that
    else:
        model, masks = (
            _replaced_tokens(settings, config, tokenizer),
            {"mask_replace_prob": 0.85, "random_replace_prob": 0.0},
        )
    trainer = CountingTrainer(
        model=model,
        args=_training_arguments(turns, settings, arguments),
        train_dataset=grouped_texts(settings.prepared, settings.length, tokenizer),
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=0.15, **masks),
        callbacks=[TakeTurns()],
    )
    trainer.train()
    return facts_of_training(
        losses, model, f"{'bf16-mixed' if trainer.args.bf16 else '32-true'}, {config._attn_implementation or 'sdpa'}"
    )


def _their_config(config: EncoderConfig, tokenizer: Any) -> Any:
    """An architecture as transformers has it."""
    import transformers

    fields = config.to_json() | {"vocab_size": len(tokenizer), "pad_token_id": 0}
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "cls", "sep")}
    return transformers.AutoConfig.for_model(**fields, **special)


def _replaced_tokens(settings: Settings, config: Any, tokenizer: Any) -> Any:
    """ELECTRA's two models of transformers with shared embeddings; the loss is that of both."""
    import torch
    import transformers

    objective = settings.objective
    assert isinstance(objective, ReplacedTokens)

    class Electra(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.discriminator = transformers.ElectraForPreTraining(config)
            small = _their_config(objective.generator_config_for(settings.config()), tokenizer)
            self.generator = transformers.ElectraForMaskedLM(small)
            ours, theirs = self.discriminator.electra.embeddings, self.generator.electra.embeddings
            for name in ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm"):
                setattr(theirs, name, getattr(ours, name))
            self.generator.generator_lm_head.weight = ours.word_embeddings.weight

        def forward(self, input_ids: Any, labels: Any, special_tokens_mask: Any = None, **masks: Any) -> dict[str, Any]:
            masked = labels != -100
            logits = self.generator(input_ids, **masks).logits[masked].float()
            targets = labels[masked]
            noise = -torch.empty_like(logits).exponential_().log()  # argmax of logits and Gumbel's noise: a sample
            text = torch.where(masked, labels, input_ids)
            corrupted = text.masked_scatter(masked, (logits.detach() + noise).argmax(dim=-1))
            judged = self.discriminator(corrupted, **masks, labels=(corrupted != text).long())
            loss = torch.nn.functional.cross_entropy(logits, targets)
            return {"loss": objective.generator_weight * loss + objective.discriminator_weight * judged.loss}

    return Electra()


def _training_arguments(turns: Turns, settings: Settings, arguments: dict[str, Any]) -> TrainingArguments:
    import torch
    import transformers

    return transformers.TrainingArguments(
        output_dir=str(CACHE / "transformers"),
        max_steps=turns.num_units,
        per_device_train_batch_size=settings.rows,
        learning_rate=LEARNING_RATE,
        warmup_steps=WARMUP_STEPS,
        dataloader_drop_last=True,  # a short batch at the end of an epoch would be compiled anew
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        seed=SEED,
        **arguments,
    )


def grouped_texts(prepared: Path, length: int, tokenizer: Any) -> datasets.Dataset:
    """The training split as `run_mlm.py` groups it: [CLS] text [SEP] of all documents end to end, cut into rows."""
    import datasets
    import numpy as np

    from domainbert.data.prepared import open_prepared

    split = open_prepared([prepared]).train
    cls, sep = ([tokenizer.cls_token_id], [tokenizer.sep_token_id])
    parts = [part for n in range(split.num_documents) for part in (cls, split.document(n), sep)]
    ids = np.concatenate(parts).astype(np.int32)
    ids = ids[: len(ids) // length * length].reshape(-1, length)
    specials = np.isin(ids, tokenizer.all_special_ids).astype(np.int8)
    columns = {
        "input_ids": ids,
        "token_type_ids": np.zeros_like(specials),
        "attention_mask": np.ones_like(specials),
        "special_tokens_mask": specials,
    }
    return datasets.Dataset.from_dict({name: list(values) for name, values in columns.items()})


def model_flop_utilisation(
    measurements: Sequence[Measurement], facts: Mapping[str, dict[str, Any]]
) -> dict[str, float]:
    """The arithmetic that each side's tokens need, as a share of what the device does in domainbert's precision."""
    _, sides = summarise(measurements, facts)
    ours = facts["domainbert"]
    return {name: side["median"] * ours["flops_per_token"] / ours["peak_flops"] for name, side in sides.items()}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="Pretraining: domainbert against transformers.Trainer")
    parser.add_argument("--encoder", default="small", help="name of an encoder, as in a YAML")
    parser.add_argument(
        "--objective", choices=tuple(OBJECTIVES), default="masked_lm", help="replaced_tokens: ELECTRA's"
    )
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--tokens", type=int, help="of a step; None: 8,192, or 4,096 from a width of 768 on")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side; the median counts")
    parser.add_argument("--steps", type=int, help="optimiser steps of a measurement; None: as many as end in minutes")
    parser.add_argument("--dropout", type=float, default=0.1, help="of all sides; 0.1 is BERT's")
    parser.add_argument("--without-defaults", action="store_true", help="leave out the Trainer's defaults")
    parser.add_argument("--out", type=Path, help="default: results/pretrain-ENCODER-LENGTH.json")
    options = parser.parse_args()
    name, prepared = prepared_corpus()
    width = named_encoder(options.encoder).sizes.hidden_size
    rows = (options.tokens or (4096 if width >= _LARGE else 8192)) // options.length
    settings = Settings(prepared, options.encoder, options.length, rows, options.dropout, OBJECTIVES[options.objective])
    what = options.encoder if options.objective == "masked_lm" else f"{options.encoder}-{options.objective}"
    out = options.out or Path(__file__).parent / "results" / f"pretrain-{what}-{options.length}.json"
    sides = [
        Side("domainbert", train_domainbert, settings),
        Side("Trainer, defaults", train_by_defaults, settings),
        Side("Trainer, best setting", train_at_best, settings),
    ]
    sides = [side for side in sides if not (options.without_defaults and side.work is train_by_defaults)]
    warm_up, steps = next(of for least, of in sorted(_WARM_UP_AND_STEPS.items(), reverse=True) if width >= least)
    rounds = Rounds(options.rounds, warm_up, options.steps or steps)
    print(f"{options.encoder}, {settings.rows} rows of {settings.length}, {name} corpus, {num_cores()} cores")
    measurements, facts = measure(sides, rounds, CACHE / "logs", partial=out)
    sizes = {side: fact["parameters"] for side, fact in facts.items()}
    assert len(set(sizes.values())) == 1, f"the models differ: {sizes}"
    described = {"corpus": name, "rounds": asdict(rounds)}
    described |= {name: getattr(settings, name) for name in ("encoder", "length", "rows", "dropout")}
    described["objective"] = options.objective
    utilisation = model_flop_utilisation(measurements, facts)
    further = {"model_flop_utilisation": utilisation}
    report(out, "tokens", described, _PACKAGES, measurements, facts, further)
    print("model FLOP utilisation: " + ", ".join(f"{name} {share:.1%}" for name, share in utilisation.items()))


if __name__ == "__main__":
    main()
