"""A labelled file is opened once, whatever its kind: the lines from which the kind is detected are not read again."""

import json

import pytest

from domainbert.corpus import files
from domainbert.labelled.read import read_labelled
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.token_labels.config import TokenLabels

ENTITY = {"text": "The Fed rose.", "entities": [{"start": 4, "end": 7, "label": "org"}]}
TREE = "1\tRates\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\trose\t_\tVERB\t_\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        (Ner(), "a.conll", "The O\nFed B-org\n\nrose O\n"),
        (Ner(), "a.jsonl", json.dumps(ENTITY)),
        (Ner(), "a.jsonl", '{"tokens": ["Fed"], "tags": ["B-org"]}'),
        (TokenLabels(), "a.txt", "The\tDET\nFed\tNOUN\n\nrose\tVERB\n"),
        (Parsing(), "a.conllu", TREE),
        (Classification(), "a.csv", "text,label\nRates rose.,up\nRates fell.,down\n"),
        (Classification(), "a.jsonl", '[{"text": "Rates rose.", "label": "up"}]'),
        (MultiLabel(), "a.tsv", "text\tlabels\nRates rose.\tup;rates\n"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 10 else "",
)
def test_a_labelled_file_is_opened_once(tmp_path, monkeypatch, task, name, content):
    opened = []
    open_bytes = files.open_bytes
    monkeypatch.setattr(files, "open_bytes", lambda path: opened.append(path) or open_bytes(path))
    path = tmp_path / name
    path.write_text(content)
    assert read_labelled(task, path).items
    assert opened == [path]
