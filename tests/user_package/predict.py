"""Predicts in Python: what `--allow-import` does on the command line, importing the configurations does here."""

import json
from pathlib import Path

import mine.grade.config
import mine.pre_norm.config
import mine.whole_words.config  # noqa: F401
from domainbert import load_predictor, load_tagger
from domainbert.base.errors import DomainbertError

text = json.loads(Path("data/test.jsonl").read_text().splitlines()[0])["text"]
shown = {"grade": load_predictor("run/grades", "32-true").predict([text])[0].grade}
try:
    load_tagger("run/grades")
except DomainbertError as error:
    shown["refused"] = str(error)
print(json.dumps(shown))
