"""Detect exact and near duplicates in bounded memory.

Digests and signatures are stored in a temporary SQLite database: a cache of fixed size, then a temporary file (in
$TMPDIR), which is deleted when the database is closed or the process ends.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from domainbert.base.errors import DomainbertError, needs_package

if TYPE_CHECKING:
    from datasketch import MinHash
    from typing_extensions import Self

_CACHE_KIB = 64 * 1024
_PERMUTATIONS = 128  # hash functions, and so values of a signature
_MAX_BAND_THRESHOLD = 0.98  # above it datasketch would choose a single band and raise an error
_SHINGLE_WORDS = 5  # of a run of words
_SHINGLE_BATCH = 8192  # datasketch allocates a matrix of shingles x permutations


class _SpillingTable:
    """Temporary SQLite database, as a context manager that closes it."""

    def __init__(self, *statements: str) -> None:
        self.database = sqlite3.connect("", isolation_level=None)
        settings = (f"cache_size = -{_CACHE_KIB}", "journal_mode = OFF", "synchronous = OFF", "temp_store = FILE")
        for statement in [*(f"PRAGMA {setting}" for setting in settings), *statements, "BEGIN"]:
            self.database.execute(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.database.close()
        if isinstance(error, sqlite3.Error):
            raise DomainbertError(
                f"deduplication in $TMPDIR failed ({error})", hint="set TMPDIR to a larger disk"
            ) from error


class ExactDuplicates(_SpillingTable):
    """Set of 16-byte digests; takes about 40 bytes of disk per digest when the cache is full."""

    def __init__(self) -> None:
        super().__init__("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")

    def add_if_new(self, digest: bytes) -> bool:
        """Add a digest, and return whether it is new."""
        return self.database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1


class NearDuplicates(_SpillingTable):
    """Set of texts without near duplicates, by MinHash signatures and locality-sensitive hashing (Leskovec et al.,
    Mining of Massive Datasets, section 3.4).

    A text is a near duplicate if its Jaccard similarity of five-word runs with an earlier text reaches the threshold.
    datasketch computes the signatures and chooses the bands; its own index would keep all signatures in memory.
    """

    def __init__(self, threshold: float) -> None:
        try:
            from datasketch import MinHash, MinHashLSH
        except ImportError as error:
            missing = needs_package("datasketch", "near-duplicates")
            raise missing.at("corpus.near_duplicate_threshold") from error
        bands = MinHashLSH(threshold=min(threshold, _MAX_BAND_THRESHOLD), num_perm=_PERMUTATIONS)
        self.threshold, self.bands, self.rows = threshold, bands.b, bands.r  # numbers of bands, and of rows per band
        self._empty: MinHash = MinHash(num_perm=_PERMUTATIONS)
        super().__init__(
            "CREATE TABLE signatures (id INTEGER PRIMARY KEY, signature BLOB)",
            "CREATE TABLE bands (band INTEGER, rows BLOB, id INTEGER, PRIMARY KEY (band, rows, id)) WITHOUT ROWID",
        )

    def add_if_new(self, text: str) -> bool:
        """Add the text if no earlier text reaches the similarity threshold; return whether it was added."""
        signature = self._signature(text)
        # of each band of the signature: its number, and its values as bytes
        keys = [
            (band, signature.hashvalues[band * self.rows : (band + 1) * self.rows].tobytes())
            for band in range(self.bands)
        ]
        # candidates have all values of at least one band in common with the text
        query = "SELECT id FROM bands WHERE band=? AND rows=?"
        candidate_ids = {text_id for key in keys for (text_id,) in self.database.execute(query, key)}
        if any(self._similarity(signature, candidate_id) >= self.threshold for candidate_id in sorted(candidate_ids)):
            return False
        blob = signature.hashvalues.tobytes()
        text_id = self.database.execute("INSERT INTO signatures (signature) VALUES (?)", (blob,)).lastrowid
        self.database.executemany("INSERT INTO bands VALUES (?, ?, ?)", [(*key, text_id) for key in keys])
        return True

    def _similarity(self, signature: MinHash, candidate_id: int) -> float:
        """Return the estimated Jaccard similarity to a stored text: the share of equal minima (Broder 1997)."""
        import numpy as np

        row = self.database.execute("SELECT signature FROM signatures WHERE id=?", (candidate_id,)).fetchone()
        return float(np.mean(np.frombuffer(row[0], signature.hashvalues.dtype) == signature.hashvalues))

    def _signature(self, text: str) -> MinHash:
        from domainbert.corpus.ngrams import words_of_text  # imports NumPy

        words = words_of_text(text)
        signature = self._empty.copy()
        count = max(len(words) - _SHINGLE_WORDS + 1, 1)  # a shorter text is a single run
        for start in range(0, count, _SHINGLE_BATCH):
            stop = min(start + _SHINGLE_BATCH, count)
            signature.update_batch(" ".join(words[i : i + _SHINGLE_WORDS]).encode() for i in range(start, stop))
        return signature
