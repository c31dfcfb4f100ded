"""The words of one seed: lists of words and invented names, each list split into familiar and held-out words."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import product
from random import Random
from typing import Any, Literal

Half = Literal["familiar", "held_out", "all"]
"""Part of each list of words to use: one of its two halves, or all words."""

NAME_COUNTS = {"programme_name": 160, "place_name": 120, "survey_name": 50, "agency_name": 50}
_NUM_TITLES = 240


@cache
def read_data_file(name: str) -> dict[str, Any]:
    """Return the contents of `words.yaml` or `grammar.yaml`; the comments in these files describe them."""
    import yaml  # `--help` imports this module, and does without YAML

    content: dict[str, Any] = yaml.safe_load(files("domainbert.samples").joinpath(name).read_text(encoding="utf-8"))
    return content


class Vocabulary:
    """All lists of words, each divided at random into a familiar and a held-out half.

    Labelled training text takes only familiar words from each list; validation and test text use both halves; raw text
    uses all words. About 3 % of the held-out words still occur in labelled training text, because they are also in
    another list or in the grammar. Only a model that was trained on raw text can have seen the others.
    """

    def __init__(self, seed: int) -> None:
        rng = Random(f"{seed}/vocabulary")
        data = read_data_file("words.yaml")
        lists = _split_lists(data["general"])
        for domain, domain_lists in data["domains"].items():
            lists |= {f"{domain}.{name}": words for name, words in _split_lists(domain_lists).items()}
        lists |= _invent_names(_split_lists(data["name_syllables"]), rng)
        lists["programme_title"] = _invent_titles(_split_lists(data["title_words"]), rng)
        self._words = {name: _halve(words, rng) for name, words in lists.items()}
        self.domains = tuple(data["domains"])

    def words(self, name: str, domain: str, half: Half) -> tuple[str, ...]:
        """Return one half of the words in the list `name` of the domain, or of the general list `name` if the domain
        has no such list. Raise `KeyError` if neither exists."""
        halves = self._words.get(f"{domain}.{name}") or self._words[name]
        return halves[half]


def _split_lists(lists: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(words.split(", ")) for name, words in lists.items()}


def _halve(words: tuple[str, ...], rng: Random) -> dict[Half, tuple[str, ...]]:
    shuffled = rng.sample(words, len(words))
    middle = (len(words) + 1) // 2
    return {"familiar": tuple(shuffled[:middle]), "held_out": tuple(shuffled[middle:]), "all": words}


def _invent_names(syllables: dict[str, tuple[str, ...]], rng: Random) -> dict[str, tuple[str, ...]]:
    possible_names = {"".join(parts).capitalize() for parts in product(*syllables.values())}
    # sorted: the order of a set is not the same in every process
    names = iter(rng.sample(sorted(possible_names), sum(NAME_COUNTS.values())))
    return {list_name: tuple(next(names) for _ in range(count)) for list_name, count in NAME_COUNTS.items()}


def _invent_titles(title_words: dict[str, tuple[str, ...]], rng: Random) -> tuple[str, ...]:
    """Return long programme names, half of them with their initials: `Rural Harvest Fund ( RHF )`."""
    possible_titles = [" ".join(words) for words in product(*title_words.values())]
    titles = rng.sample(possible_titles, _NUM_TITLES)
    for index in range(1, len(titles), 2):  # every second title
        initials = "".join(word[0] for word in titles[index].split())
        titles[index] += f" ( {initials} )"
    return tuple(titles)
