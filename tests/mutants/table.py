"""Which modules are mutated, those in which an error is wrong science, and the tests that are to notice it."""

from __future__ import annotations

_STAGES = ("tests/stages/test_pretrain.py", "tests/stages/test_finetune.py", "tests/stages/test_evaluate.py")
_DISTILLING = ("tests/objectives/distillation", "tests/data/test_soft_labels.py", "tests/data/test_examples.py")
_GOLDEN = "tests/objectives/test_masked_lm.py"  # losses of a whole training
_PREDICTING = ("tests/test_inference.py", "tests/stages/test_predict.py")

# module below the package -> tests beside it, and those further off, which what the former miss is given to
TESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "data/masking.py": (("tests/data/test_masking.py", "tests/data/test_batches.py"), (_GOLDEN, *_STAGES)),
    "data/packing.py": (("tests/data/test_packing.py", "tests/data/test_batches.py"), (_GOLDEN, *_STAGES)),
    "data/order.py": (("tests/data/test_order.py", "tests/data/test_batches.py"), (_GOLDEN, *_STAGES)),
    "data/counter_random.py": (("tests/data/test_counter_random.py",), (_GOLDEN, *_STAGES)),
    "data/batches.py": (("tests/data/test_batches.py", "tests/data/test_ranks_and_workers.py"), (_GOLDEN, *_STAGES)),
    "data/examples.py": (("tests/data/test_examples.py", "tests/objectives/distillation/test_on_task.py"), _PREDICTING),
    "data/tags.py": (("tests/data/test_tags.py", "tests/data/test_conll.py"), _PREDICTING),
    "data/distillation.py": (_DISTILLING, ("tests/stages/test_distill.py", "tests/stages/test_distill_task.py")),
    "data/soft_labels.py": (("tests/data/test_soft_labels.py",), ("tests/stages/test_distill_task.py",)),
    "metrics/bootstrap.py": (("tests/metrics/test_bootstrap.py",), ("tests/stages/test_evaluate.py",)),
    "metrics/classification.py": (("tests/metrics/test_classification.py",), ("tests/stages/test_evaluate.py",)),
    "metrics/counts.py": (
        ("tests/metrics/test_summary.py", "tests/metrics/test_classification.py", "tests/metrics/test_entities.py"),
        ("tests/stages/test_evaluate.py",),
    ),
    "metrics/entities.py": (("tests/metrics/test_entities.py",), ("tests/stages/test_evaluate.py",)),
    "metrics/matching.py": (
        ("tests/metrics/test_matching.py", "tests/metrics/test_entities.py"),
        ("tests/stages/test_evaluate.py",),
    ),
    "metrics/slices.py": (("tests/metrics/test_slices.py",), ("tests/stages/test_evaluate.py",)),
    "metrics/summary.py": (("tests/metrics/test_summary.py",), ("tests/stages/test_evaluate.py",)),
    "encoders/attention.py": (("tests/encoders/test_attention.py", "tests/encoders/test_parity.py"), _STAGES),
    "encoders/crf.py": (
        ("tests/encoders/test_crf.py", "tests/objectives/test_crf_loss.py", "tests/objectives/test_ner.py"),
        _PREDICTING,
    ),
    "encoders/heads.py": (("tests/encoders/test_heads.py", "tests/encoders/test_parity.py"), ("tests/encoders",)),
    "encoders/layers.py": (
        ("tests/encoders/test_heads.py", "tests/encoders/test_parity.py", "tests/objectives/test_dropout.py"),
        ("tests/encoders",),
    ),
    "encoders/recording.py": (("tests/encoders/test_recording.py", "tests/objectives/distillation"), ()),
    "encoders/text_dropout.py": (
        ("tests/encoders/test_text_dropout.py", "tests/objectives/test_dropout.py"),
        ("tests/stages/test_finetune.py",),
    ),
    "encoders/uncompiled.py": (("tests/encoders/test_attention.py", "tests/encoders/test_families.py"), ()),
    "objectives/classification.py": (("tests/objectives/test_classification.py",), _STAGES),
    "objectives/decoding.py": (
        ("tests/objectives/test_ner.py", "tests/objectives/test_classification.py"),
        _PREDICTING,
    ),
    "objectives/finetuning.py": (
        ("tests/objectives/test_crf_loss.py", "tests/objectives/test_ner.py", "tests/objectives/test_steps.py"),
        _STAGES,
    ),
    "objectives/masked_lm.py": (("tests/objectives/test_masked_lm.py", "tests/training/test_numbers.py"), _STAGES),
    "objectives/ner.py": (("tests/objectives/test_ner.py", "tests/objectives/test_crf_loss.py"), _STAGES),
    "objectives/optimisers.py": (("tests/objectives/test_optimisers.py",), _STAGES),
    "objectives/schedules.py": (("tests/objectives/test_schedules.py",), _STAGES),
    "objectives/steps.py": (
        ("tests/objectives/test_steps.py", "tests/objectives/test_dropout.py", "tests/training/test_numbers.py"),
        (_GOLDEN, *_STAGES),
    ),
    "objectives/distillation/attention.py": (("tests/objectives/distillation",), ("tests/stages/test_distill.py",)),
    "objectives/distillation/distilling.py": (
        ("tests/objectives/distillation", "tests/objectives/test_steps.py"),
        ("tests/stages/test_distill.py", "tests/stages/test_distill_task.py"),
    ),
    "objectives/distillation/hidden.py": (("tests/objectives/distillation",), ("tests/stages/test_distill.py",)),
    "objectives/distillation/losses.py": (("tests/objectives/distillation",), ("tests/stages/test_distill.py",)),
    "objectives/distillation/on_corpus.py": (("tests/objectives/distillation",), ("tests/stages/test_distill.py",)),
    "objectives/distillation/on_task.py": (("tests/objectives/distillation",), ("tests/stages/test_distill_task.py",)),
    "objectives/distillation/prediction.py": (("tests/objectives/distillation",), ("tests/stages/test_distill.py",)),
    "objectives/distillation/weighted.py": (("tests/objectives/distillation",), ("tests/stages/test_distill.py",)),
    "tokenization/align.py": (("tests/tokenization/test_align.py", "tests/data/test_examples.py"), _PREDICTING),
    "tokenization/matching.py": (("tests/tokenization/test_matching.py",), ("tests/stages/test_transfer.py",)),
    "transfer/mixing.py": (("tests/transfer",), ("tests/stages/test_transfer.py",)),
    "transfer/focus.py": (("tests/transfer",), ("tests/stages/test_transfer.py",)),
    "training/throughput.py": (("tests/training/test_throughput.py",), ("tests/stages/test_pretrain.py",)),
    "cost.py": (("tests/test_cost.py",), ("tests/stages/test_evaluate.py",)),
    "tuning/space.py": (("tests/tuning/test_space.py",), ("tests/tuning/test_study.py",)),
}
