"""Tokenize a stream of documents in worker processes, in order and with bounded memory.

Worker processes import this module: keep its imports light.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer

from domainbert.base.choices import allow_import_arguments, allow_imports
from domainbert.base.errors import DomainbertError
from domainbert.corpus.documents import Document
from domainbert.tokenization.load import DomainTokenizer

_BATCH_CHARACTERS = 500_000  # a batch ends at this number of characters
_BATCH_DOCUMENTS = 10_000  # or at this number of documents
_PIECE_CHARACTERS = 3_000  # minimum length of a piece of a long text
_CALL_CHARACTERS = 100_000  # minimum length of the pieces in a call of the tokenizer
_MAX_PENDING_CHARACTERS = 100_000_000  # bounds the memory for huge documents and many workers
T = TypeVar("T")
_WORD_END = re.compile(r"(?<=\S) ")


@dataclass(frozen=True)
class EncodedBatch:
    """Documents and their token ids, back to back."""

    documents: list[Document]
    lengths: np.ndarray  # tokens of each document, int64 (documents,)
    input_ids: np.ndarray  # no special tokens, except between texts of a pair; uint16 or uint32 (sum of lengths,)
    starts_word: np.ndarray  # whether each token begins a word, bool (sum of lengths,)


Encoded = tuple[np.ndarray, np.ndarray, np.ndarray]  # lengths, input_ids and starts_word


def token_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest dtype for ids: uint16 for up to 65,536 entries, otherwise uint32."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def encode_documents(
    documents: Iterable[Document], tokenizer: DomainTokenizer, num_workers: int
) -> Iterator[EncodedBatch]:
    """Yield batches of encoded documents, in order. The batches do not depend on the number of worker processes; with 0
    workers, this process encodes. Raise `DomainbertError` if a worker dies."""
    batches = _chunks(documents, lambda document: len(document.text), _BATCH_CHARACTERS, _BATCH_DOCUMENTS)
    if num_workers > 0:
        yield from _encode_in_workers(batches, tokenizer, num_workers)
        return
    for batch in batches:
        yield EncodedBatch(batch, *_encode_sides(tokenizer, [document.sides for document in batch]))


def _chunks(
    items: Iterable[T], size: Callable[[T], int], min_size: int, max_items: float = math.inf
) -> Iterator[list[T]]:
    chunk: list[T] = []
    total = 0
    for item in items:
        chunk.append(item)
        total += size(item)
        if total >= min_size or len(chunk) >= max_items:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def _encode_in_workers(
    batches: Iterable[list[Document]], tokenizer: DomainTokenizer, num_workers: int
) -> Iterator[EncodedBatch]:
    # spawn, not fork: locks that the tokenizer's threads hold would never be released in a forked process
    context = multiprocessing.get_context("spawn")
    backend = tokenizer.copy_backend().to_str()
    allowed_imports = allow_import_arguments()[1:]  # without the name of the option
    arguments = (backend, tokenizer.special_tokens, allowed_imports)
    pool = ProcessPoolExecutor(num_workers, context, initializer=_start_worker, initargs=arguments)
    pending: deque[tuple[list[Document], Future[Encoded]]] = deque()
    try:
        pending_characters = 0
        for batch in batches:
            size = sum(len(document.text) for document in batch)
            # three batches per worker, so that no worker waits; fewer if the documents are huge
            while pending and (len(pending) >= 3 * num_workers or pending_characters + size > _MAX_PENDING_CHARACTERS):
                documents, future = pending.popleft()
                pending_characters -= sum(len(document.text) for document in documents)
                yield EncodedBatch(documents, *future.result())
            with _block_ctrl_c():  # `submit` starts the workers
                pending.append((batch, pool.submit(_encode_in_worker, [document.sides for document in batch])))
            pending_characters += size
        for documents, future in pending:
            yield EncodedBatch(documents, *future.result())
    except BrokenProcessPool as error:
        raise DomainbertError(
            "a worker process died: it was killed (out of memory?), or the calling script has no "
            '`if __name__ == "__main__":`',
            where="prepare",
            hint="add this line, or set num_workers: 0 to use no worker processes",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _block_ctrl_c() -> Iterator[None]:
    """Block SIGINT in this thread and in processes that it starts inside the context: from their first moment, only the
    parent handles Ctrl-C, and stops its workers."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _encode_sides(tokenizer: DomainTokenizer, documents: Sequence[tuple[str, ...]]) -> Encoded:
    """Encode documents, each a text or a pair of texts. Between the texts of a pair, special tokens are inserted, each
    of which counts as the beginning of a word."""
    text_lengths, input_ids, starts_word = _encode(tokenizer, [text for texts in documents for text in texts])
    num_texts = np.array([len(texts) for texts in documents])
    if (num_texts == 1).all():
        return text_lengths, input_ids, starts_word

    # insert the separators into the pairs, where their first texts end
    separators = np.asarray(tokenizer.template.separators, input_ids.dtype)
    first_texts = np.cumsum(num_texts) - num_texts  # index of the first text of each document
    borders = np.cumsum(text_lengths)[first_texts[num_texts == 2]]  # (pairs,) in the tokens
    insert_at = np.repeat(borders, len(separators))
    input_ids = np.insert(input_ids, insert_at, np.tile(separators, len(borders)))
    lengths = np.add.reduceat(text_lengths, first_texts) + (num_texts - 1) * len(separators)
    return lengths, input_ids, np.insert(starts_word, insert_at, True)


def _encode(tokenizer: DomainTokenizer, texts: Sequence[str]) -> Encoded:
    # long texts are encoded in pieces, which is faster and needs less memory
    dtype = token_dtype(tokenizer.vocab_size)
    lengths = np.zeros(len(texts), np.int64)
    # the empty first arrays are for no texts
    input_ids, starts_word = [np.zeros(0, dtype)], [np.zeros(0, np.bool_)]
    pieces = ((number, piece) for number, text in enumerate(texts) for piece in split_text(text, _PIECE_CHARACTERS))
    for group in _chunks(pieces, lambda item: len(item[1]), _CALL_CHARACTERS):
        encoded = tokenizer.encode_with_starts([piece for _, piece in group])
        for (number, _), (ids, starts) in zip(group, encoded, strict=True):
            lengths[number] += len(ids)
            input_ids.append(ids.astype(dtype))
            starts_word.append(starts)
    return lengths, np.concatenate(input_ids), np.concatenate(starts_word)


def split_text(text: str, characters: int) -> Iterator[str]:
    """Yield pieces of a text, each of at least `characters` characters (the last may be shorter). The ids of the
    pieces, one after the other, are the ids of the whole text.

    The text is cut only before a space after a word: there every pre-tokenizer begins a new word, and the space belongs
    to the next word. It is not cut before a line break, because byte-level tokenizers would add a space to the piece.
    """
    start = 0
    while start < len(text):
        cut = _WORD_END.search(text, start + characters)
        stop = cut.start() if cut else len(text)
        yield text[start:stop]
        start = stop


_tokenizer: DomainTokenizer | None = None  # of a worker process


def _start_worker(backend: str, special_tokens: Mapping[str, str], allowed: Sequence[str]) -> None:
    global _tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    allow_imports(",".join(allowed) or None)  # a user package may define the kind of the tokenizer
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _tokenizer = DomainTokenizer(Tokenizer.from_str(backend), special_tokens)


def _exit_with_parent() -> None:
    # a killed parent cannot stop its workers
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _encode_in_worker(documents: list[tuple[str, ...]]) -> Encoded:
    assert _tokenizer is not None, "_start_worker runs first"
    return _encode_sides(_tokenizer, documents)
