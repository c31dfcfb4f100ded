"""The stage `transfer`: give a pretrained model the vocabulary of a domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from domainbert.base.errors import DomainbertError, check_one_given
from domainbert.base.fields import TOKENIZER, Range, Seed
from domainbert.base.files import write_json
from domainbert.base.paths import ModelPath, model_name
from domainbert.corpus.config import CorpusConfig
from domainbert.stages.stage import Inputs, stage
from domainbert.stages.vocab import count_words

if TYPE_CHECKING:
    from torch import Generator

    from domainbert.models.transfer import Mixing
    from domainbert.stages.early_checks import StageArguments
    from domainbert.tokenization.load import DomainTokenizer
    from domainbert.tokenization.surfaces import Origin, Vocabulary
    from domainbert.tokenization.words import WordCounter

Method = Literal["mean", "fvt", "focus", "random"]

_MAX_SAMPLE_BYTES = 1_000_000_000  # bytes of text whose words are counted
_MAX_EXAMPLES = 20  # added words in the message


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Settings of `transfer`."""

    model: ModelPath
    """Model folder to start from; `package:NAME/folder` and `hub:NAME[@REVISION]` also work."""

    corpus: CorpusConfig
    """Text of the domain; only its training split is read."""

    tokenizer: ModelPath | None = field(default=None, metadata=TOKENIZER)
    """Folder of the new vocabulary. Set either this or `extend`."""

    extend: Annotated[int, Range(1, 1_000_000)] | None = None
    """Number of words to add to the vocabulary of the model: the words that save the most pieces on the corpus."""

    method: Method = "fvt"
    """Initial embedding of a new entry. `mean`: mean of the old pieces of its text. `fvt`: the same, but an entry that
    continues a word is cut into continuing pieces. `focus`: weighted mean of the shared entries with similar contexts
    in the corpus. `random`, the baseline: random values with mean and standard deviation of the old embeddings."""

    seed: Seed = 0
    """Seed of random embeddings."""

    def __post_init__(self) -> None:
        check_one_given(tokenizer=self.tokenizer, extend=self.extend)


@stage
def transfer(out: Path, settings: Transfer, inputs: Inputs) -> dict[str, Any]:
    """Replace or extend the vocabulary of a model; only its word embeddings and output bias change.

    Entries that both vocabularies have are copied. Continue with `pretrain` and `init_from`. The report is
    transfer.json in `out`.

    Raises:
        DomainbertError: the model or the tokenizer cannot be read, or the corpus has too few words to add.
    """
    import torch

    from domainbert.models.loading import check_vocabulary, load_tensors, vocabulary_names
    from domainbert.models.saving import save_with_vocabulary
    from domainbert.models.transfer import mix_vectors
    from domainbert.tokenization.load import read_backend
    from domainbert.tokenization.report import transfer_lines, transfer_view
    from domainbert.tokenization.surfaces import Origin, origins, vocabulary_of
    from domainbert.tokenization.words import plain_words

    folder = inputs.model(settings.model)
    tensors = load_tensors(folder.path, folder.config)
    check_vocabulary(folder.path, tensors, folder.config, folder.vocab_size)
    words = count_words(settings.corpus, _MAX_SAMPLE_BYTES, ["train"])["train"]
    if words.documents < words.documents_read:
        print(f"words counted in {words.documents:,} of {words.documents_read:,} documents, chosen by hash")
    old = _old_vocabulary(folder.path, folder.vocab_size)
    tokenizer = _new_tokenizer(folder.path, settings, words, inputs)
    new = vocabulary_of(tokenizer)
    generator = torch.Generator().manual_seed(settings.seed)
    matches = origins(new, old, keep_role=settings.method != "mean")
    if settings.extend is not None:  # `extend_tokenizer` keeps all ids
        matches[: len(old.tokens)] = [Origin("copied", (number,)) for number in range(len(old.tokens))]
    mixing = _mixing(settings, matches, tokenizer, generator)
    for name in vocabulary_names(folder.config):
        if name in tensors:
            tensors[name] = mix_vectors(mixing, tensors[name], generator)
    report = transfer_view(new, old, words.words(plain_words())) | {
        "method": settings.method,
        "vocab_size": mixing.num_rows,
        "entries": {kind: sum(origin.kind == kind for origin in matches) for kind in ("copied", "composed", "new")},
        "drawn": len(mixing.random_rows),
        "source": model_name(folder.path),
    }
    *_, length = read_backend(folder.path)  # of the windows of fine-tuning, for a model with a head
    max_length = min(length or folder.config.max_length, folder.config.max_length)
    save_with_vocabulary(out, folder, tensors, tokenizer, _card(report, folder.path), max_length)
    write_json(out / "transfer.json", report, unredacted=True)
    print("\n".join(transfer_lines(report)))
    metrics = {name: value for name, value in report.items() if name != "shortened_words"}
    return metrics | {"fingerprint": tokenizer.fingerprint}


def check_arguments(arguments: StageArguments) -> None:
    """Check that the weights and the vocabulary of the model can be read.

    `extend` needs a tokenizer that domainbert can open. Otherwise the texts of the entries are enough.
    """
    from domainbert.models.folder import need_weights
    from domainbert.tokenization.surfaces import load_vocabulary

    if arguments.is_ready(arguments["model"]):
        with arguments.record_problems("model"):
            folder = arguments.inputs.model(arguments["model"])
            need_weights(folder)
            if arguments["extend"] is None:
                load_vocabulary(folder.path)
            else:
                arguments.inputs.tokenizer(folder.path)


def _old_vocabulary(path: Path, vocab_size: int) -> Vocabulary:
    from domainbert.tokenization.surfaces import load_vocabulary

    old = load_vocabulary(path)
    if len(old.tokens) > vocab_size:
        raise DomainbertError(
            f"the tokenizer has {len(old.tokens):,} entries, but vocab_size in config.json is only {vocab_size:,}",
            file=path,
            expected="the tokenizer of this model",
        )
    if len(old.tokens) < vocab_size:
        print(f"{path}: embeddings without a vocabulary entry: {vocab_size - len(old.tokens):,}, which are left out")
    return old


def _new_tokenizer(path: Path, settings: Transfer, counter: WordCounter, inputs: Inputs) -> DomainTokenizer:
    from domainbert.tokenization.extend import extend_tokenizer, words_to_add

    if settings.extend is None:
        assert settings.tokenizer is not None
        return inputs.tokenizer(settings.tokenizer)
    old = inputs.tokenizer(path)
    added = words_to_add(old, counter.words(old.kind.word_splitter(old.backend)), settings.extend)
    examples = [word.strip() or repr(word) for word in added[:_MAX_EXAMPLES]]
    if len(added) > _MAX_EXAMPLES:
        examples.append("...")
    print(f"added {len(added):,} words: {', '.join(examples)}")
    return extend_tokenizer(old, added)


def _mixing(settings: Transfer, matches: Sequence[Origin], tokenizer: DomainTokenizer, generator: Generator) -> Mixing:
    from domainbert.models.static_embeddings import count_contexts, static_embeddings
    from domainbert.models.transfer import mean_mixing, random_mixing, similarity_mixing

    if settings.method == "random":
        return random_mixing(matches)
    if settings.method == "focus":
        contexts = count_contexts(tokenizer.vocab_size, _training_ids(settings.corpus, tokenizer))
        return similarity_mixing(matches, static_embeddings(contexts, generator))
    return mean_mixing(matches)


def _training_ids(corpus: CorpusConfig, tokenizer: DomainTokenizer) -> Iterator[list[int]]:
    from domainbert.corpus.documents import read_documents
    from domainbert.models.static_embeddings import ENOUGH_TOKENS

    tokens = 0
    for document in read_documents(corpus):
        if document.split == "train":
            (ids,) = tokenizer.encode([document.text])
            yield ids
            tokens += len(ids)
        if tokens >= ENOUGH_TOKENS:
            print(f"contexts counted in the first {tokens:,} tokens of the corpus")
            break


def _card(report: Mapping[str, Any], model: Path) -> str:
    from domainbert.models.card import card_head, inherited_values, load_code, model_card, read_head

    shares = ", ".join(f"{100 * share:.1f} % {kind}" for kind, share in report["shares"].items())
    facts = {
        "model": report["source"],
        "method": report["method"],
        "vocabulary": f"{report['vocab_size']:,} entries: {shares}",
        "pieces per word saved on the corpus": f"{report['pieces_saved']:.4f}",
    }
    summary = "A model whose vocabulary was changed with domainbert; it is meant to be pretrained further."
    title = "Encoder with a domain vocabulary"
    head = card_head(title, read_head(model).get("pipeline_tag"), inherited=inherited_values(model))
    return model_card(title, summary, facts, load_code(), head)
