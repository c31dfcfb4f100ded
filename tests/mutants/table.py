"""Which modules are mutated, those in which an error is wrong science, and the tests that are to notice it."""

from __future__ import annotations

_STAGES = ("tests/stages/test_pretrain.py", "tests/stages/test_finetune.py", "tests/stages/test_evaluate.py")
_DISTILLING = ("tests/distillation", "tests/distillation/test_soft_labels.py", "tests/data/test_examples.py")
_GOLDEN = "tests/pretraining/test_masked_lm.py"  # losses of a whole training
_REPLACED = ("tests/pretraining/test_replaced_tokens.py",)
_REPLACED_STAGES = ("tests/stages/test_pretrain_replaced_tokens.py",)
_PAIRS = ("tests/pretraining/test_sentence_pairs.py",)
_PAIRS_STAGES = ("tests/stages/test_pretrain_sentence_pairs.py",)
_ANSWERING = ("tests/tasks/test_question_answering.py",)
_OPINIONS = "tests/distillation/test_opinions.py"
_TRAINER = "tests/library/trainer"  # Lightning's Trainer with the modules of this package
_EVERY_TASK = f"{_TRAINER}/test_tasks.py"
_PREDICTING = ("tests/serving/test_predictor.py", "tests/stages/test_predict.py")

# module below the package -> its own tests, and further tests for the mutants that survive them
TESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pretraining/masking.py": (
        ("tests/pretraining/test_masking.py", "tests/data/test_batches.py"),
        ("tests/pretraining/test_rates.py", _GOLDEN, *_STAGES),
    ),
    "pretraining/phases.py": (
        ("tests/pretraining/test_phases.py",),
        ("tests/stages/test_show.py", "tests/stages/test_pretrain.py"),
    ),
    "training/config.py": (
        ("tests/training/test_length_phases.py", "tests/training/test_config.py"),
        ("tests/pretraining/test_phases.py",),
    ),
    "data/packing.py": (("tests/data/test_packing.py", "tests/data/test_batches.py"), (_GOLDEN, *_STAGES)),
    "data/splits.py": (("tests/data/test_packing.py", "tests/data/test_prepared.py"), (_GOLDEN,)),
    "data/batches.py": (
        (
            "tests/data/test_order.py",
            "tests/data/test_windowed_order.py",
            "tests/data/test_balanced_order.py",
            "tests/data/test_batches.py",
            "tests/pretraining/test_ranks_and_workers.py",
        ),
        (_GOLDEN, *_STAGES),
    ),
    "data/parts.py": (("tests/data/test_parts.py",), ()),
    "data/parts_writer.py": (("tests/data/test_parts.py",), ()),
    "corpus/languages.py": (("tests/corpus/test_languages.py",), ("tests/pretraining/test_languages.py",)),
    "pretraining/languages.py": (("tests/pretraining/test_languages.py",), ("tests/stages/test_languages.py",)),
    "corpus/ngrams.py": (("tests/corpus/test_selection.py", "tests/checks/test_corpus_rules.py"), ()),
    "corpus/selection.py": (("tests/corpus/test_selection.py",), ("tests/stages/test_prepare.py",)),
    "checks/corpus_fit.py": (("tests/checks/test_fit.py",), ("tests/stages/test_check_corpus.py",)),
    "base/counter_random.py": (("tests/base/test_counter_random.py",), (_GOLDEN, *_STAGES)),
    "data/examples.py": (("tests/data/test_examples.py", "tests/distillation/test_on_task.py"), _PREDICTING),
    "labelled/tag_schemes.py": (("tests/labelled/test_tags.py", "tests/labelled/test_conll.py"), _PREDICTING),
    "distillation/batches.py": (_DISTILLING, ("tests/stages/test_distill.py", "tests/stages/test_distill_task.py")),
    "distillation/soft_labels.py": (
        ("tests/distillation/test_soft_labels.py",),
        ("tests/stages/test_distill_task.py",),
    ),
    "metrics/answers.py": (("tests/metrics/test_answers.py",), ("tests/tasks/test_question_stages.py",)),
    "metrics/bootstrap.py": (("tests/metrics/test_bootstrap.py",), ("tests/stages/test_evaluate.py",)),
    "metrics/calibration.py": (("tests/metrics/test_calibration.py",), ("tests/stages/test_crooked_data.py",)),
    "metrics/classification.py": (
        ("tests/metrics/test_classification.py", "tests/metrics/test_multi_label.py"),
        (
            "tests/stages/test_evaluate.py",
            "tests/tasks/test_multi_label.py",
            "tests/tasks/test_token_labels.py",
            "tests/tasks/test_relations.py",
        ),
    ),
    "metrics/diagnostics.py": (
        ("tests/metrics/test_confusion.py", "tests/metrics/test_lengths.py", "tests/metrics/test_reliability.py"),
        ("tests/tasks/test_mistakes.py",),
    ),
    "metrics/counts.py": (
        ("tests/metrics/test_summary.py", "tests/metrics/test_classification.py", "tests/metrics/test_entities.py"),
        ("tests/stages/test_evaluate.py",),
    ),
    "metrics/entities.py": (
        ("tests/metrics/test_entities.py", "tests/metrics/test_matching.py", "tests/metrics/test_slices.py"),
        ("tests/stages/test_evaluate.py", "tests/tasks/test_mistakes.py"),
    ),
    "metrics/regression.py": (("tests/metrics/test_regression.py",), ("tests/tasks/test_regression.py",)),
    "metrics/summary.py": (
        ("tests/metrics/test_summary.py", "tests/metrics/test_slices_of_sets.py"),
        ("tests/stages/test_evaluate.py", "tests/stages/test_crooked_data.py"),
    ),
    "metrics/entity_modules.py": (
        ("tests/metrics/test_entities.py", "tests/metrics/test_modules.py"),
        ("tests/stages/test_finetune.py",),
    ),
    "metrics/modules.py": (
        ("tests/metrics/test_classification.py", "tests/metrics/test_modules.py"),
        ("tests/stages/test_finetune.py",),
    ),
    "encoders/windows.py": (("tests/encoders/test_windows.py", "tests/encoders/test_modernbert.py"), ()),
    "encoders/modernbert/config.py": (("tests/encoders/test_modernbert.py", "tests/encoders/test_families.py"), ()),
    "encoders/modernbert/layers.py": (("tests/encoders/test_modernbert.py", "tests/encoders/test_parity.py"), ()),
    "encoders/modernbert/model.py": (("tests/encoders/test_modernbert.py", "tests/encoders/test_parity.py"), ()),
    "encoders/base.py": (
        ("tests/encoders/test_base.py", "tests/encoders/test_parity.py", "tests/encoders/test_roberta.py"),
        ("tests/encoders",),
    ),
    "encoders/albert/config.py": (("tests/encoders/test_albert.py", "tests/encoders/test_families.py"), ()),
    "encoders/albert/model.py": (("tests/encoders/test_albert.py", "tests/encoders/test_parity.py"), ()),
    "encoders/mpnet/model.py": (("tests/encoders/test_mpnet.py", "tests/encoders/test_parity.py"), ()),
    "encoders/deberta_v2/layers.py": (("tests/encoders/test_deberta_v2.py",), ("tests/encoders",)),
    "encoders/crf.py": (
        ("tests/encoders/test_crf.py", "tests/tasks/test_crf_loss.py", "tests/tasks/test_ner.py"),
        _PREDICTING,
    ),
    "encoders/heads.py": (
        ("tests/encoders/test_heads.py", "tests/encoders/test_head_config.py", "tests/encoders/test_parity.py"),
        ("tests/encoders",),
    ),
    "encoders/layers.py": (
        ("tests/encoders/test_attention.py", "tests/encoders/test_heads.py", "tests/encoders/test_parity.py"),
        ("tests/encoders",),
    ),
    "encoders/recording.py": (("tests/encoders/test_recording.py", "tests/distillation"), ()),
    "encoders/packed.py": (("tests/encoders/test_attention.py", "tests/encoders/test_windows.py"), ("tests/encoders",)),
    "encoders/dropout.py": (
        ("tests/encoders/test_dropout.py", "tests/training/test_dropout.py"),
        ("tests/stages/test_finetune.py",),
    ),
    "tasks/loss_config.py": (("tests/tasks/test_class_weights.py",), ()),
    "tasks/slices.py": (("tests/tasks/test_slices.py",), ("tests/stages/test_crooked_data.py",)),
    "tasks/classification/task.py": (
        ("tests/tasks/test_classification.py", "tests/tasks/test_class_weights.py"),
        _STAGES,
    ),
    "tasks/decoding.py": (
        ("tests/tasks/test_ner.py", "tests/tasks/test_classification.py", "tests/distillation/test_on_task.py"),
        _PREDICTING,
    ),
    "training/divergence.py": (
        (_OPINIONS, "tests/distillation/test_losses.py"),
        ("tests/stages/test_distill.py", "tests/stages/test_distill_task.py"),
    ),
    "tasks/finetuning.py": (
        (
            "tests/tasks/test_crf_loss.py",
            "tests/tasks/test_ner.py",
            "tests/training/test_module.py",
        ),
        (*_STAGES, _EVERY_TASK, f"{_TRAINER}/test_lightning_user.py"),
    ),
    "pretraining/module.py": (
        ("tests/pretraining/test_masked_lm.py", "tests/training/test_numbers.py"),
        (f"{_TRAINER}/test_as_stages.py", *_STAGES),
    ),
    "pretraining/objectives/masked_lm/objective.py": (
        (_GOLDEN, "tests/pretraining/test_corpus_rows.py", "tests/stages/test_warnings.py"),
        _STAGES,
    ),
    "pretraining/losses.py": (("tests/pretraining/test_z_loss.py", *_REPLACED), (_GOLDEN, *_STAGES)),
    "pretraining/objectives/replaced_tokens/config.py": (_REPLACED, _REPLACED_STAGES),
    "pretraining/objectives/replaced_tokens/objective.py": (_REPLACED, _REPLACED_STAGES),
    "pretraining/objectives/replaced_tokens/sharing.py": (_REPLACED, _REPLACED_STAGES),
    "pretraining/objectives/sentence_pairs/config.py": (_PAIRS, _PAIRS_STAGES),
    "pretraining/objectives/sentence_pairs/objective.py": (_PAIRS, _PAIRS_STAGES),
    "pretraining/objectives/sentence_pairs/plan.py": (_PAIRS, _PAIRS_STAGES),
    "pretraining/objectives/sentence_pairs/sentences.py": (_PAIRS, _PAIRS_STAGES),
    "encoders/biaffine.py": (("tests/encoders/test_biaffine.py", _OPINIONS), ("tests/tasks/test_parsing.py",)),
    "metrics/attachment.py": (("tests/metrics/test_attachment.py",), ("tests/tasks/test_parsing_stages.py",)),
    "tasks/parsing/trees.py": (("tests/tasks/test_trees.py", "tests/tasks/test_treebanks.py"), ()),
    "tasks/parsing/files.py": (("tests/tasks/test_treebanks.py",), ("tests/tasks/test_parsing.py",)),
    "tasks/parsing/task.py": (("tests/tasks/test_parsing.py", _OPINIONS), ("tests/tasks/test_parsing_stages.py",)),
    "tasks/question_answering/task.py": ((*_ANSWERING, _OPINIONS), (_EVERY_TASK,)),
    "tasks/question_answering/windows.py": ((*_ANSWERING, _OPINIONS), (_EVERY_TASK,)),
    "tasks/relations/marked.py": (("tests/tasks/test_relations.py",), ()),
    "tasks/relations/task.py": (("tests/tasks/test_relations.py", _OPINIONS), ()),
    "tasks/relations/reading.py": (("tests/tasks/test_relations.py",), ()),
    "tasks/token_labels/task.py": (("tests/tasks/test_token_labels.py",), ()),
    "tasks/word_task.py": (("tests/tasks/test_crf_loss.py", "tests/tasks/test_token_labels.py"), _STAGES),
    "tasks/ner/confidence.py": (("tests/tasks/test_schemes.py",), _PREDICTING),
    "tasks/ner/task.py": (
        ("tests/tasks/test_ner.py", "tests/tasks/test_crf_loss.py", "tests/tasks/test_schemes.py"),
        _STAGES,
    ),
    "training/averaging.py": (("tests/training/test_averaging.py",), ("tests/stages/test_finetune_settings.py",)),
    "training/optimisers.py": (
        (
            "tests/training/test_optimisers.py",
            "tests/training/test_layer_decay.py",
            "tests/training/test_schedules.py",
        ),
        _STAGES,
    ),
    "training/module.py": (
        ("tests/training/test_module.py", "tests/training/test_dropout.py", "tests/training/test_numbers.py"),
        (f"{_TRAINER}/test_bad_input.py", f"{_TRAINER}/test_as_stages.py", _GOLDEN, *_STAGES),
    ),
    "distillation/module.py": (
        ("tests/distillation", "tests/training/test_module.py"),
        ("tests/stages/test_distill.py", "tests/stages/test_distill_task.py"),
    ),
    "distillation/losses.py": (("tests/distillation",), ("tests/stages/test_distill.py",)),
    "distillation/weighted.py": (("tests/distillation",), ("tests/stages/test_distill.py",)),
    "tokenization/align.py": (
        (
            "tests/tokenization/test_align.py",
            "tests/tokenization/test_offsets.py",
            "tests/tokenization/test_byte_bpe.py",
            "tests/data/test_examples.py",
        ),
        _PREDICTING,
    ),
    "tokenization/kinds/byte_bpe/kind.py": (("tests/tokenization/test_byte_bpe.py",), ("tests/stages/test_kinds.py",)),
    "tokenization/kinds/unigram/kind.py": (
        ("tests/tokenization/test_unigram.py", "tests/tokenization/test_published_unigram.py"),
        ("tests/stages/test_kinds.py",),
    ),
    "tokenization/kinds/unigram/learning.py": (
        ("tests/tokenization/test_unigram.py",),
        ("tests/stages/test_kinds.py",),
    ),
    "tokenization/special_tokens.py": (("tests/tokenization/test_special_tokens.py",), _PREDICTING),
    "tokenization/surfaces.py": (
        ("tests/tokenization/test_matching.py", "tests/tokenization/test_surfaces.py"),
        ("tests/stages/test_transfer.py",),
    ),
    "models/transfer.py": (
        ("tests/models/test_mixing.py", "tests/models/test_focus.py"),
        ("tests/stages/test_transfer.py",),
    ),
    "training/throughput.py": (("tests/training/test_throughput.py",), ("tests/stages/test_pretrain.py",)),
    "serving/cost.py": (("tests/serving/test_cost.py",), ("tests/stages/test_evaluate.py",)),
    "tuning/space.py": (("tests/tuning/test_space.py",), ("tests/tuning/test_study.py",)),
}
