"""`check`: looks at labelled sets and corpora before hours are spent on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from domainbert.base.errors import DomainbertError, nearest
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Finite, Length, PositiveInt
from domainbert.checks.labelled_set import SetName
from domainbert.corpus.config import CorpusConfig
from domainbert.labelled.sets import LabelledSet
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage
from domainbert.tasks.config import TaskConfig

if TYPE_CHECKING:
    from domainbert.checks.finding import Finding
    from domainbert.checks.rules import LabelledCheck
    from domainbert.corpus.report import CorpusReport
    from domainbert.stages.early_checks import Given
    from domainbert.tokenization.load import DomainTokenizer


REPORTS = True
"""See `Stage.reports`: a file is mended and checked again."""


@dataclass(frozen=True)
class LabelledSets:
    """The labelled sets of a task."""

    train: LabelledSet | None = None
    """Labelled training set, as `train` of `finetune`."""

    validation: LabelledSet | None = None
    """Set by which the epoch is chosen."""

    test: LabelledSet | None = None
    """Test set. It is compared with the others, its labels are counted and its texts looked at; nothing is chosen by
    it."""

    def given(self) -> dict[SetName, LabelledSet]:
        """Those that there are, by name."""
        return {name: one for name in get_args(SetName) if (one := getattr(self, name)) is not None}


@dataclass(frozen=True, kw_only=True)
class Check:
    """Settings of `check`."""

    labelled: LabelledSets | None = None
    """Labelled sets of one task: train, validation, test."""

    task: TaskConfig | None = None
    """Task of the labelled sets (`Ner`, `Classification`, ...), and the format of its files, as for `finetune`."""

    corpus: CorpusConfig | None = None
    """Text without labels that a model is, or is to be, pretrained on. With labelled sets beside it, `check` says how
    well it predicts their texts."""

    other_corpora: dict[str, CorpusConfig] = field(default_factory=dict)
    """More text without labels, each by a name, to see which predicts the labelled texts best."""

    tokenizer: ModelPath | None = None
    """Folder of a tokenizer or a model; if given, texts are looked at as its vocabulary reads them."""

    max_length: Length | None = None
    """Tokens of a window, as for `finetune`; None takes that of the tokenizer's folder."""

    most_characters: PositiveInt | None = None
    """Characters of each corpus that are read: of the beginning of each file, in proportion to its size. None reads
    all; a check that a recipe runs by itself reads 50 million."""

    ignore: dict[str, str] = field(default_factory=dict)
    """Rules whose findings do not count, each with the reason."""

    thresholds: dict[str, Finite] = field(default_factory=dict)
    """Other thresholds, by the names of rules."""

    strict: bool = False
    """Warnings are errors."""

    def __post_init__(self) -> None:
        """Check that there is something to look at, and the names of rules."""
        if self.corpus is None and (self.labelled is None or not self.labelled.given()):
            raise DomainbertError("labelled: nothing to look at; expected train, validation or test, or a corpus")
        if self.labelled is not None and self.task is None:
            raise DomainbertError("task: missing; expected the task that labelled sets are for")
        if self.ignore or self.thresholds:
            _check_rules(self)


def _check_rules(settings: Check) -> None:
    from domainbert.checks.corpus_rules import RULES
    from domainbert.checks.rules import OF_LABELLED_SETS

    known = {one.name: one for one in [*OF_LABELLED_SETS, *RULES]}
    for key, names in (("ignore", settings.ignore), ("thresholds", settings.thresholds)):
        for name in names:
            if name not in known:
                raise DomainbertError(f"{key}: {name[:80]!r} is no rule; {nearest(name, list(known))}")
    for name, reason in settings.ignore.items():
        if not reason.strip():
            raise DomainbertError(f"ignore: {name} has no reason; expected a few words that say why it does not count")
    for name, value in settings.thresholds.items():
        if value < 0:
            raise DomainbertError(f"thresholds: {name}: found {value:g}; expected 0 or more")
        if known[name].threshold is None:
            raise DomainbertError(f"thresholds: {name} has none: each case is told; expected another rule, or ignore")


@stage
def check(out: Path, settings: Check, inputs: Inputs) -> dict[str, Any]:
    """Look at labelled sets and corpora: leaks between splits, odd labels, broken text, what a vocabulary cannot read.

    Errors stop a recipe, and end the command with exit code 1. `out` gets `check.json`.
    docs/reference/checks.md lists the rules.

    Raises:
        DomainbertError: the corpus or the tokenizer cannot be read. What is wrong with a labelled file is a finding.
    """
    from domainbert.checks.finding import REPORT, listed, with_reasons, write_report
    from domainbert.checks.labelled_set import facts

    looked_at = _labelled(settings, inputs)
    of_corpus, data = _corpus(settings, looked_at)
    findings = with_reasons([*looked_at.findings(), *of_corpus], settings.ignore)
    fitted = _fit(settings, looked_at)
    write_report(out / REPORT, findings, data | {one.name: facts(one) for one in looked_at.sets}, fitted)
    print(listed(findings, "check"), flush=True)
    errors = [one for one in findings if one.is_error or (settings.strict and one.ignored is None)]
    found = {
        "findings": _counts(findings),
        "errors": [_advised(one) for one in errors],
        "warnings": [_leak(one) for one in findings if one.rule.endswith("-and-test") and "same-" in one.rule],
    }
    return found if fitted is None else {**found, "fit": fitted}


def _labelled(settings: Check, inputs: Inputs) -> LabelledCheck:
    from domainbert.checks.reading import read_checked
    from domainbert.checks.rules import LabelledCheck

    sets, unread = [], []
    for name, given in (settings.labelled or LabelledSets()).given().items():
        assert settings.task is not None
        read, problems = read_checked(settings.task, name, given, inputs.labelled)
        sets += [] if read is None else [read]
        unread += problems
    tokenizer = None if settings.tokenizer is None else _load(settings.tokenizer, inputs)
    max_length = settings.max_length or (None if tokenizer is None else tokenizer.model_max_length)
    return LabelledCheck(sets, unread, tokenizer, max_length, settings.thresholds)


def _load(folder: Path, inputs: Inputs) -> DomainTokenizer:
    """The tokenizer of a folder, of one with a model for each seed that of the best."""
    from domainbert.models.folder import best_seed_folder

    return inputs.tokenizer(best_seed_folder(folder))


def _corpus(settings: Check, looked_at: LabelledCheck) -> tuple[Iterable[Finding], dict[str, Any]]:
    """The findings of the rules in the corpus, and facts of it, by its name."""
    from domainbert.checks.checked_corpus import corpus_facts, look_at_corpus
    from domainbert.checks.corpus_rules import corpus_findings

    if settings.corpus is None:
        return [], {}
    tests = [one for one in looked_at.sets if one.name == "test"]
    corpus = look_at_corpus(settings.corpus, tests, looked_at.tokenizer, settings.most_characters)
    if cut := sum(source.files_cut for source in corpus.report.sources):
        print(_excerpt(corpus.report, cut), flush=True)
    return corpus_findings(corpus, settings.thresholds), {"corpus": corpus_facts(corpus)}


def _excerpt(report: CorpusReport, cut: int) -> str:
    read = sum(source.read_characters for source in report.sources)
    files = "a file" if cut == 1 else f"{cut:,} files"
    advice = "`most_characters: null` reads all"
    return f"check: {read:,} characters of the corpus were read, and {files} not to the end; {advice}"


def _fit(settings: Check, looked_at: LabelledCheck) -> dict[str, Any] | None:
    """Measure how well the corpora predict the texts of the first labelled set; None without one of both. It is
    printed."""
    from domainbert.checks.fit import fit, fit_lines

    own = {} if settings.corpus is None else {"corpus": settings.corpus}
    corpora = own | settings.other_corpora
    if not corpora or not looked_at.sets:
        return None
    found = fit(corpora, looked_at.sets[0].texts, most_characters=settings.most_characters)
    print("\n".join(fit_lines(found)), flush=True)
    return found


def _counts(findings: Iterable[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in findings:
        counts[one.rule] = counts.get(one.rule, 0) + one.count
    return counts


def _leak(one: Finding) -> str:
    """The message of a finding that makes test scores too high, with the reason if the rule is ignored."""
    return one.message if one.ignored is None else f"{one.message} (ignored: {one.ignored})"


def _advised(one: Finding) -> str:
    return f"{one.rule}: {one.message}; mend it, or ignore the rule with a reason: ignore: {{{one.rule}: ...}}"


def check_arguments(given: Given) -> None:
    """Check the tokenizer."""
    if given.there(given["tokenizer"]):
        with given.under("tokenizer"):
            _load(given["tokenizer"], given.inputs)
