"""The stage `check`: find errors in labelled sets and corpora before a long training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from domainbert.base.errors import DomainbertError, counted, suggest_name
from domainbert.base.fields import Finite, Length, PositiveInt, renamed_from
from domainbert.base.files import write_json
from domainbert.base.paths import ModelPath
from domainbert.checks.labelled_set import SetName
from domainbert.corpus.config import CorpusConfig
from domainbert.labelled.sets import LabelledSet
from domainbert.settings.removed import removed_hint
from domainbert.stages.stage import Inputs, stage
from domainbert.tasks.config import TaskConfig

if TYPE_CHECKING:
    from domainbert.checks.finding import Finding
    from domainbert.checks.rules import LabelledCheck
    from domainbert.stages.early_checks import StageArguments
    from domainbert.tokenization.load import DomainTokenizer


REPORTS = True
"""See `Stage.reports`: another run replaces the report without `--force`."""


@dataclass(frozen=True)
class LabelledSets:
    """Labelled sets of a task."""

    train: LabelledSet | None = None
    """Labelled training set, like `train` of `finetune`."""

    validation: LabelledSet | None = None
    """Validation set, which chooses the epoch."""

    test: LabelledSet | None = None
    """Test set. `check` compares it with the other sets and inspects it; nothing is selected with it."""

    def named_sets(self) -> dict[SetName, LabelledSet]:
        """Return the sets that are not None, by name."""
        sets = {name: getattr(self, name) for name in get_args(SetName)}
        return {name: labelled_set for name, labelled_set in sets.items() if labelled_set is not None}


@dataclass(frozen=True, kw_only=True)
class Check:
    """Settings of `check`."""

    labelled: LabelledSets | None = None
    """Labelled sets of a task: `train`, `validation`, `test`."""

    task: TaskConfig | None = None
    """Task of the labelled sets (`Ner`, `Classification`, ...) and the format of their files, as for `finetune`."""

    corpus: CorpusConfig | None = None
    """Corpus for pretraining. If labelled sets are given too, `check` measures how well the corpus predicts their
    texts."""

    other_corpora: dict[str, CorpusConfig] = field(default_factory=dict)
    """Other corpora, by name, to compare how well each predicts the labelled texts. They need a labelled set, and names
    other than `corpus` if `corpus` is given."""

    tokenizer: ModelPath | None = None
    """Folder of a tokenizer or a model; adds a check of lengths in tokens, and pieces per word to the printed table."""

    max_length: Length | None = None
    """Tokens of a window, as for `finetune`; None takes the value saved with the tokenizer."""

    max_characters: PositiveInt | None = field(default=None, metadata=renamed_from("most_characters"))
    """Largest number of characters to read from each corpus: the beginning of each file, in proportion to its size.
    None reads the whole corpus; the automatic check of a recipe reads 50 million."""

    ignore: dict[str, str] = field(default_factory=dict)
    """Rules to ignore, each with a reason."""

    thresholds: dict[str, Finite] = field(default_factory=dict)
    """Thresholds that override the defaults, by rule name."""

    strict: bool = False
    """Treat warnings as errors."""

    def __post_init__(self) -> None:
        has_labelled = self.labelled is not None and bool(self.labelled.named_sets())
        if self.corpus is None and not has_labelled:
            raise DomainbertError(
                where="labelled", found="no set and no corpus", expected="at least labelled.train or corpus"
            )
        if self.other_corpora and not has_labelled:
            raise DomainbertError(
                where="other_corpora", found="no labelled set to predict", expected="at least labelled.train"
            )
        if self.corpus is not None and "corpus" in self.other_corpora:
            raise DomainbertError(
                where="other_corpora", found="the name 'corpus', as of the setting `corpus`", expected="another name"
            )
        if self.labelled is not None and self.task is None:
            raise DomainbertError("missing", where="task", expected="the task of the labelled sets, such as Ner")
        if self.ignore or self.thresholds:
            _check_rules(self)


def _check_rules(settings: Check) -> None:
    from domainbert.checks.corpus_rules import RULES
    from domainbert.checks.rules import LABELLED_SET_RULES

    rules = {rule.name: rule for rule in [*LABELLED_SET_RULES, *RULES]}
    for key, names in (("ignore", settings.ignore), ("thresholds", settings.thresholds)):
        for name in names:
            if name not in rules:
                if removed := removed_hint(Check, name):
                    raise DomainbertError(f"the rule {name!r} {removed}", where=key)
                problem = f"no rule has the name {name[:80]!r}"
                raise DomainbertError(problem, where=key, **suggest_name(name, rules))
    for name, reason in settings.ignore.items():
        if not reason.strip():
            raise DomainbertError(
                f"the rule '{name}' has no reason", where="ignore", expected=f"ignore: {{{name}: your reason}}"
            )
    for name, value in settings.thresholds.items():
        if value < 0:
            raise DomainbertError(where="thresholds", found=f"{value:g} for the rule '{name}'", expected="0 or more")
        if rules[name].threshold is None:
            advice = f"remove it here; to switch the rule off, set ignore: {{{name}: your reason}}"
            raise DomainbertError(f"the rule '{name}' has no threshold", where="thresholds", hint=advice)


@stage
def check(out: Path, settings: Check, inputs: Inputs) -> dict[str, Any]:
    """Find leaks between splits, unusual labels and broken text, and measure a vocabulary and corpora on the texts.

    An error stops a recipe and ends the command with exit code 1. The report is `check.json` in `out`.
    docs/reference/checks.md lists the rules.

    Raises:
        DomainbertError: the corpus or the tokenizer cannot be read. Errors in labelled files are findings.
    """
    from domainbert.checks.finding import format_findings, with_reasons
    from domainbert.checks.labelled_set import labelled_set_facts
    from domainbert.checks.split_rules import TEST_LEAK_RULES

    labelled = _read_sets(settings, inputs)
    corpus_findings, data = _check_corpus(settings, labelled)
    findings = with_reasons([*labelled.findings(), *corpus_findings], settings.ignore)
    corpus_fit = _measure_fit(settings, labelled)
    data |= {checked.name: labelled_set_facts(checked) for checked in labelled.sets}
    write_json(out / "check.json", {"findings": list(map(asdict, findings)), "data": data, "fit": corpus_fit})
    print(format_findings(findings, "check"), flush=True)
    errors = [finding for finding in findings if finding.is_error or (settings.strict and finding.ignored is None)]
    result = {
        "findings": _counts_by_rule(findings),
        "errors": [_error_line(error) for error in errors],
        # a recipe repeats them beside its scores
        "warnings": [_leak_line(finding) for finding in findings if finding.rule in TEST_LEAK_RULES],
    }
    return result if corpus_fit is None else {**result, "fit": corpus_fit}


def _read_sets(settings: Check, inputs: Inputs) -> LabelledCheck:
    from domainbert.checks.rules import LabelledCheck, read_checked

    sets, problems = [], []
    for name, labelled_set in (settings.labelled or LabelledSets()).named_sets().items():
        assert settings.task is not None
        checked, unreadable = read_checked(settings.task, name, labelled_set, inputs.labelled)
        if checked is not None:
            sets.append(checked)
        problems += unreadable
    tokenizer = None if settings.tokenizer is None else _load_tokenizer(settings.tokenizer, inputs)
    max_length = settings.max_length or (None if tokenizer is None else tokenizer.model_max_length)
    return LabelledCheck(sets, problems, tokenizer, max_length, settings.thresholds)


def _load_tokenizer(folder: Path, inputs: Inputs) -> DomainTokenizer:
    from domainbert.models.folder import best_seed_folder

    return inputs.tokenizer(best_seed_folder(folder))


def _check_corpus(settings: Check, labelled: LabelledCheck) -> tuple[Iterable[Finding], dict[str, Any]]:
    from domainbert.checks.checked_corpus import corpus_facts, scan_corpus
    from domainbert.checks.corpus_rules import RULES
    from domainbert.checks.finding import apply_rules

    if settings.corpus is None:
        return [], {}
    test = next((checked for checked in labelled.sets if checked.name == "test"), None)
    corpus = scan_corpus(settings.corpus, test, settings.max_characters)
    sources = corpus.report.sources
    if num_cut := sum(source.files_cut for source in sources):
        read = f"{sum(source.read_characters for source in sources):,} characters of the corpus"
        advice = "to read the whole corpus, set max_characters: null for check"
        print(f"check: read {read}, and {counted(num_cut, 'files')} only in part; {advice}", flush=True)
    return apply_rules(RULES, corpus, settings.thresholds), {"corpus": corpus_facts(corpus)}


def _measure_fit(settings: Check, labelled: LabelledCheck) -> dict[str, Any] | None:
    """Return and print the result; None without a labelled set, or without a corpus and a tokenizer."""
    from domainbert.checks.corpus_fit import compare_corpora, format_corpus_fit

    corpora = ({} if settings.corpus is None else {"corpus": settings.corpus}) | settings.other_corpora
    if not labelled.sets or not (corpora or labelled.tokenizer):
        return None
    texts, limit = labelled.sets[0].texts, settings.max_characters
    corpus_fit = compare_corpora(corpora, texts, labelled.tokenizer, max_characters=limit)
    print(format_corpus_fit(corpus_fit), flush=True)
    return corpus_fit


def _counts_by_rule(findings: Iterable[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.rule] = counts.get(finding.rule, 0) + finding.count
    return counts


def _leak_line(finding: Finding) -> str:
    return finding.message if finding.ignored is None else f"{finding.message} (ignored: {finding.ignored})"


def _error_line(finding: Finding) -> str:
    rule = finding.rule
    ignore = "" if rule == "unreadable" else f", or set ignore: {{{rule}: your reason}} for check"  # no rule reads it
    return f"{rule}: {finding.message}; correct the data{ignore}"


def check_arguments(arguments: StageArguments) -> None:
    """Check that the tokenizer can be read."""
    if arguments.is_ready(arguments["tokenizer"]):
        with arguments.record_problems("tokenizer"):
            _load_tokenizer(arguments["tokenizer"], arguments.inputs)
