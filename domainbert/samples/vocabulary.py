"""The words of one seed: lexicons and invented names, each list split into familiar and held-out words."""

from __future__ import annotations

from dataclasses import asdict
from random import Random
from typing import Literal

from domainbert.samples import lexicons

Half = Literal["familiar", "held_out", "all"]
"""Part of each list of words to use: one of its two halves, or all words."""

NAME_COUNTS = {"programme_name": 160, "place_name": 120, "survey_name": 50, "agency_name": 50}
_NUM_TITLES = 240


class Vocabulary:
    """All lists of words, each divided at random into a familiar and a held-out half.

    Labelled training text uses only familiar words; validation and test text use both halves; raw text uses all words.
    So only a model that was trained on raw text can have seen a held-out word.
    """

    def __init__(self, seed: int) -> None:
        rng = Random(f"{seed}/vocabulary")
        lists = dict(lexicons.GENERAL)
        for domain, lexicon in lexicons.DOMAINS.items():
            lists |= {f"{domain}.{name}": words for name, words in asdict(lexicon).items()}
        lists |= _invent_names(rng)
        lists["programme_title"] = _invent_titles(rng)
        self._words = {name: _halve(words, rng) for name, words in lists.items()}
        self.domains = tuple(lexicons.DOMAINS)

    def words(self, name: str, domain: str, half: Half) -> tuple[str, ...] | None:
        """Return one half of the words in the list `name` of the domain, or in the general list if the domain has none;
        None if there is no such list."""
        halves = self._words.get(f"{domain}.{name}") or self._words.get(name)
        return halves[half] if halves else None


def _halve(words: tuple[str, ...], rng: Random) -> dict[Half, tuple[str, ...]]:
    """Divide words at random into two halves; the familiar half has the odd word."""
    shuffled = rng.sample(words, len(words))
    middle = (len(words) + 1) // 2
    return {"familiar": tuple(shuffled[:middle]), "held_out": tuple(shuffled[middle:]), "all": words}


def _invent_names(rng: Random) -> dict[str, tuple[str, ...]]:
    """Return distinct invented names for each list of `NAME_COUNTS`; all lists use the same syllables."""
    parts = lexicons.NAME_STARTS, lexicons.NAME_MIDDLES, lexicons.NAME_ENDS
    possible = [(start + middle + end).capitalize() for start in parts[0] for middle in parts[1] for end in parts[2]]
    names = iter(rng.sample(sorted(set(possible)), sum(NAME_COUNTS.values())))
    return {list_name: tuple(next(names) for _ in range(count)) for list_name, count in NAME_COUNTS.items()}


def _invent_titles(rng: Random) -> tuple[str, ...]:
    """Return long programme names, half of them with their initials: `Rural Harvest Fund ( RHF )`."""
    possible = [
        f"{quality} {theme} {form}"
        for quality in lexicons.TITLE_QUALITIES
        for theme in lexicons.TITLE_THEMES
        for form in lexicons.TITLE_FORMS
    ]
    titles = rng.sample(possible, _NUM_TITLES)
    return tuple(
        f"{title} ( {''.join(word[0] for word in title.split())} )" if index % 2 else title
        for index, title in enumerate(titles)
    )
