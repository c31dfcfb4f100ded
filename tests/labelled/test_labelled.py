import gzip
import json
from pathlib import Path

import pytest

from domainbert.labelled.folds import split_folds, write_folds
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.items import check_labels_known, check_set_known, find_labels, label_set
from domainbert.labelled.rows import read_words_or_texts
from domainbert.labelled.sets import read_set
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.files import read as read_classification
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.regression.config import Regression
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.token_labels.config import TokenLabels
from tests.refusals import refused


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8", newline="")
        return path

    return write_file


def test_the_same_texts_from_jsonl_csv_and_tsv(write):
    texts = [("Rates, they said,\n\u2028rose.", "up"), ('"Quoted" \u0085', "down")]
    expected = [LabelledText(*texts[0], 1), LabelledText(*texts[1], 2)]
    jsonl = (
        "\ufeff" + "\n".join(json.dumps({"text": text, "label": label, "n": None}) for text, label in texts) + "\n\n"
    )
    assert read_classification(Classification(), write("a.jsonl", jsonl)).items == expected
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        rows = ["kind" + separator + "body"]
        rows += [separator.join([label, '"' + text.replace('"', '""') + '"']) for text, label in texts]
        path = write(f"a{suffix}", "\r\n".join(rows) + "\r\n")
        format = ClassificationFormat(text_key="body", label_key="kind")
        found = read_classification(Classification(format=format), path).items
        assert [(text.text, text.label) for text in found] == texts
        assert [text.line for text in found] == [2, 4]
        packed = path.with_name(f"a{suffix}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert read_classification(Classification(format=format), packed).items == found
    said = read_classification(Classification(format=format), path).describe()
    assert said == f"{path}: 2 texts; TSV with a header; 2 classes (down 1, up 1)"
    long = "x" * 300_000
    assert read_classification(Classification(), write("long.csv", f"text,label\n{long},up\n")).items[0].text == long


def test_a_quote_in_tsv_swallows_no_rows(write):
    """Where texts are not quoted, as in GLUE's files, one may begin with a quote, and one further down end with it."""
    rows = ['"I love it\tpos', "", "It fell\tneg", 'He hates this "\tneg']
    path = write("a.tsv", "\n".join(["text\tlabel", *rows]) + "\n")
    problem = "an unbalanced quote joins 3 lines of 2 columns each, '\"I love it\\tpos'"
    with refused(file=path, line=2, problem=problem, expected="doubled quotes..."):
        read_classification(Classification(), path)


def test_a_list_is_no_class(write):
    for content in ("text,label\na,\"['x', 'y']\"\n", "text,label\na,[]\n"):
        with refused(file="a.csv", line=2, problem="'label' is ..., a list", expected="one label..."):
            read_classification(Classification(), write("a.csv", content))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text": "é", "label": 0.0}\n{"text": "b", "label": 1}\n'),
        ("a.csv", "text,label\né,0.0\nb,1\n"),
        ("a.tsv", "text\tlabel\né\t0.0\nb\t1.0\n"),
    ],
)
@pytest.mark.parametrize("names", [None, ("no", "yes")])
def test_whole_numbers_with_a_point_are_the_classes_without(write, name, content, names):
    path = write(name, content)
    file = read_classification(Classification(format=ClassificationFormat(label_names=names)), path)
    assert [item.label for item in file.items] == list(names or ("0", "1"))
    times = content.count(".0")
    assert file.describe().endswith(f"\n  changed: labels such as 1.0, read as 1 ({times})")


def test_a_column_with_names_that_are_numbers_with_a_point(write):
    task = Classification(format=ClassificationFormat(label_names=("1.0", "2.0", "3.0")))
    file = read_classification(task, write("a.csv", "text,label\na,1.0\nb,2.0\nc,3.0\nd,0\ne,0.0\n"))
    assert [item.label for item in file.items] == ["1.0", "2.0", "3.0", "1.0", "1.0"]
    assert file.notes.changed == {"labels such as 1.0, read as 1": 1}


NFC, NFD = "caf\u00e9", "cafe\u0301"


def test_labels_that_look_the_same_are_told_by_their_code_points(write):
    path = write("a.jsonl", "".join(json.dumps({"text": "a", "label": one}) + "\n" for one in (NFC, "x", NFD)))
    expected = "one Unicode form: found 'cafe\\u0301' here and 'caf\\xe9' there; convert all labels to NFC"
    with refused(file=path, line=3, problem=f"label {NFD!r} differs in Unicode from {path}:1", expected=expected):
        read_set(Classification(), path)
    files = [write(f"{n}.conll", f"A B-{one}\nb O\n") for n, one in enumerate((NFD, NFC))]
    with refused(file="1.conll", line=1, problem="label ... differs in Unicode from ...0.conll:1"):
        read_set(Ner(), files)
    with refused(problem="...was not in training", expected="... found 'caf\\xe9' here and 'cafe\\u0301' there..."):
        check_set_known(read_set(Ner(), files[1]), [NFD, "other"])


@pytest.mark.parametrize("answer", ["reject", "ignore"])
@pytest.mark.parametrize("task", [Classification(), MultiLabel(), Regression(), Relations(), Ner(), TokenLabels()])
def test_texts_that_were_not_accepted_are_left_out_of_every_task(write, task, answer):
    labels = {"Classification": "x", "MultiLabel": ["x"], "Regression": 1.5, "Relations": "x"}
    row = {"text": "<< Café >> [[ B ]]", "tokens": ["Café", "B"], "tags": ["B-x", "O"]}
    row |= {task.format.label_key: labels[type(task).__name__]} if hasattr(task.format, "label_key") else {}
    path = write("a.jsonl", "".join(json.dumps({**row, "answer": one}) + "\n" for one in ("accept", answer)))
    file = task.read(path)
    assert [item.line for item in file.items] == [1]
    assert file.describe().endswith("\n  left out: texts that were not accepted (1)")


def test_an_answer_is_a_label_where_it_is_asked_for(write):
    path = write("a.csv", "text,answer\na,accept\nb,reject\n")
    file = read_classification(Classification(format=ClassificationFormat(label_key="answer")), path)
    assert [item.label for item in file.items] == ["accept", "reject"]


def test_a_file_without_quoting_is_read_as_it_stands(write):
    rows = [('"I love it', "pos"), ('é "quoted"', "neg"), ('He hates this "', "neg"), ('""', "pos")]
    for suffix, separator in ((".tsv", "\t"), (".csv", ",")):
        path = write(f"a{suffix}", "".join(separator.join(row) + "\n" for row in [("text", "label"), *rows]))
        read = read_classification(Classification(format=ClassificationFormat(quoting="none")), path)
        assert [(item.text, item.label, item.line) for item in read.items] == [
            (*row, line) for line, row in enumerate(rows, 2)
        ]
    with refused(expected="...inside quoted texts, or ..., format.quoting: none"):
        read_classification(Classification(), write("a.tsv", 'text\tlabel\n"I love it\tpos\nHe hates this "\tneg\n'))


def test_columns_may_be_separated_by_semicolons(write):
    """As Excel writes CSV where a comma is the decimal sign."""
    for num_blank in range(2):
        path = write("a.csv", "\ufeff" + "\n" * num_blank + '"text";label\n"Prices; rose, é";up\n\n3,5 %;down\n')
        assert [(item.text, item.label, item.line) for item in read_classification(Classification(), path).items] == [
            ("Prices; rose, é", "up", 2 + num_blank),
            ("3,5 %", "down", 4 + num_blank),
        ]
    with refused(file="b.csv", line=2, problem="3 columns", expected="2 as in the header"):
        read_classification(Classification(), write("b.csv", "text;label\na;b;c\n"))
    with refused(file="c.csv", line=1, problem="no column 'label'", hint="the header names 'text', 'label;other'..."):
        read_classification(Classification(), write("c.csv", "text,label;other\na,b\n"))


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_is_read_as_its_objects_one_a_line(write, indent):
    rows = [{"text": f"é {{[{number}]}}\n", "label": "ab"[number % 2]} for number in range(40)]
    lines = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    array = write("a.json", json.dumps(rows, indent=indent))
    assert read_classification(Classification(), array).items == read_classification(Classification(), lines).items
    of_array, of_lines = (split_folds(path, Classification(), 3, 0) for path in (array, lines))
    assert [json.loads(fold.validation[0]) for fold in of_array] == [
        [json.loads(line) for line in fold.validation[0].splitlines()] for fold in of_lines
    ]
    broken = write("b.json", json.dumps([rows[0], 3, {"text": "a"}], indent=indent))
    for line, problem in (("", "row 2 of the list is a JSON int"), (3, "no key 'label'; found 'text'...")):
        with refused(file=broken, line=line, problem=problem):
            read_classification(Classification(), broken)
    with refused(file="c.json", problem="the list is not closed", expected=", or ]"):
        read_classification(Classification(), write("c.json", json.dumps(rows[:1], indent=indent)[:-1] + ";"))


def test_folds_of_an_array_are_arrays(write, tmp_path):
    names = ["O", "B-gene"]
    rows = [{"tokens": [f"word{number}", "gene"], "tags": [0, 1]} for number in range(6)]
    train = write("a.json", json.dumps([{**rows[0], "label_names": names}, *rows[1:]]))
    task = Ner(format=NerFormat(kind="json"))
    changes = write_folds(split_folds(train, task, 3, 0), train, tmp_path / "folds")
    validated: list[list[str]] = []
    for fold in changes.values():
        parts = {name: read_set(task, Path(path)).items for name, path in fold.items()}
        assert [len(part) for part in parts.values()] == [4, 2]
        assert all(item.tags == names for part in parts.values() for item in part)
        validated += [item.words for item in parts["validation"]]
    assert sorted(validated) == [row["tokens"] for row in rows]


def test_labels_have_the_same_names_in_all_rows(write):
    def row(label: int, *names: str) -> str:
        return json.dumps({"text": "a", "label": label} | ({"label_names": names} if names else {}))

    rows = [row(0, "neg", "pos"), row(1), row(1, "neg", "pos")]
    assert [one.label for one in read_classification(Classification(), write("a.jsonl", "\n".join(rows))).items] == [
        "neg",
        "pos",
        "pos",
    ]
    path = write("b.jsonl", "\n".join([*rows, row(0, "pos", "neg")]))
    expected = "['neg', 'pos'], as in the first row"
    with refused(file=path, line=4, problem="'label_names' is ['pos', 'neg']", expected=expected):
        read_classification(Classification(), path)
    path = write("c.jsonl", "\n".join([row(0), row(1, "neg", "pos")]))
    with refused(file="c.jsonl", line=2, problem="'label_names' is...", expected="no such key, as in the first row"):
        read_classification(Classification(), path)
    words = [{"tokens": ["a"], "tags": [1], "label_names": names} for names in (["O", "B-x"], ["B-x", "O"])]
    path = write("d.jsonl", "\n".join(map(json.dumps, words)))
    with refused(file="d.jsonl", line=2, problem="'label_names' is...", expected="..., as in the first row"):
        read_ner(path)


@pytest.mark.parametrize(
    ("name", "content", "line", "problem", "expected"),
    [
        ("a.jsonl", '{"text": "a", "label": "b"}\n{"text": "a"}', 2, "no key 'label'; found 'text'...", "..."),
        ("a.jsonl", '{"text": "a", "label": null}', 1, "'label' is null", "a string or whole number"),
        ("a.jsonl", '{"text": "a", "label": 3.5}', 1, "'label' is 3.5", "a string or whole number"),
        ("a.jsonl", '{"text": "a", "label": true}', 1, "'label' is true", "a string or whole number"),
        ("a.jsonl", '{"text": "a", "label": -1}', 1, "'label' is -1", "a number from 0"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "a", "label": "1"}',
            2,
            "'label' is \"1\", a string",
            "a number as in line 1",
        ),
        ("a.jsonl", '{"text": " ", "label": "b"}', 1, "'text' is empty", "..."),
        ("a.jsonl", '{"text": "\\ud800", "label": "b"}', 1, "'text' contains half a surrogate pair", "..."),
        ("a.jsonl", '{"text": "a", \n', 1, "not JSON...", "..."),
        ("a.jsonl", "[1]\n", 1, "a JSON list", "an object..."),
        ("a.jsonl", "\n", "", "no texts", "..."),
        ("a.jsonl", '{"text": "a"', 1, "not JSON (Expecting ',' delimiter at...", "an object..."),
        ("a.jsonl", '{"text": "a", "label": "b"} {}', 1, "not JSON (Extra data at character 29...", "..."),
        (
            "a.jsonl",
            '{"text": "a", "label": "b", "label": "c"}',
            1,
            "JSON that cannot be read (the key 'label' more...",
            "...",
        ),
        (
            "a.jsonl",
            '{"text": "a", "n": ' + "9" * 5000 + "}",
            1,
            "JSON that cannot be read (Exceeds the limit (4300...",
            "...",
        ),
        ("a.jsonl", '{"text": "a", "n": ' + "[" * 5000, 1, "JSON that cannot be read (maximum...", "..."),
        ("a.jsonl", '{"text": "a", "label": NaN}', 1, "'label' is NaN", "a string..."),
        ("a.jsonl", '{"text": "a", "label": ["b"]}', 1, "'label' is a JSON list", "a string..."),
        ("a.jsonl", '{"text": "a", "label": ' + "[" * 900 + "]" * 900 + "}", 1, "'label' is a JSON list", "..."),
        ("a.jsonl", '{"text": "a", "label": "b "}', 1, "'label' is \"b \"", "visible characters and..."),
        ("a.jsonl", '{"text": "a", "label": "b\\ufeff"}', 1, "'label' is \"b\\ufeff\"", "visible characters..."),
        (
            "a.jsonl",
            "{" + ", ".join(f'"k{i}": 1' for i in range(99)) + "}",
            1,
            "no key 'text'; found 'k0', 'k1', 'k2'...",
            "...",
        ),
        ("a.csv", "text,label\na,b\n\ufeffc,b\u200b\n", 3, "'label' is \"b\\u200b\"", "visible characters..."),
        ("a.csv", "text,label,label\na,b,c\n", 1, "2 columns 'label'", "the header names 'text'..."),
        ("a.csv", "text,label\ra,b\r", 1, "broken CSV (new-line character seen in unquoted field...", "..."),
        ("a.tsv", 'text\tlabel\n"a"b\tc\n', 2, "broken CSV ('\\t' expected after '\"')", "..."),
        ("a.csv", 'text,label\n"a,b\nc,d\n', 2, "broken CSV (unexpected end of data)", "..."),
        ("a.csv", "text,label\na,b\nc\n", 3, "1 column", "2 as in the header"),
        ("a.csv", 'text,label\n"a"b,c\n', 2, "broken CSV...", "..."),
        ("a.csv", "text,lable\na,b\n", 1, "no column 'label'", "the header names 'text', 'lable'..."),
        ("a.csv", "text|label\na|b\n", 1, "a single column, 'text|label'", "columns separated by..."),
        ("a.tsv", "text,label\na,b\n", 1, "a single column, 'text,label'", "columns separated by tabs..."),
        ("a.csv", "", "", "no texts", "..."),
        ("a.txt", "a\n", "", "unknown suffix '.txt' and unknown content", "JSONL, CSV with a header..."),
        ("a.xml", "", "", "unknown suffix '.xml'...", "..."),
    ],
)
def test_bad_texts_name_the_line(write, name, content, line, problem, expected):
    path = write(name, content)
    with refused(file=path, line=line, problem=problem, expected=expected):
        read_classification(Classification(), path)


def test_the_kind_in_the_format_stands_above_suffix_and_lines(write):
    path = write("a.jsonl", "A O\ncat B-a\n")
    assert read_ner(path).kind == "conll" == read_ner(path, NerFormat(kind="conll")).kind
    with refused(file="a.jsonl", line=1, problem="not JSON...") as caught:
        read_ner(path, NerFormat(kind="jsonl"))
    assert len(caught.value.errors) == 2
    path = write("a.dat", "text\tlabel\na, b\tup\n")
    with refused(file="a.dat", problem="unknown suffix '.dat'...", expected="... (or set `format.kind` to jsonl..."):
        read_classification(Classification(), path)
    assert read_classification(Classification(format=ClassificationFormat(kind="tsv")), path).items == [
        LabelledText("a, b", "up", 2)
    ]
    path = write("b.txt", '{"text": "a", "label": "up"}\n')
    assert read_classification(Classification(), path).describe() == f"{path}: 1 text; JSONL; 1 class (up 1)"


BLANKS = "\t_" * 8
CONLLU = f"# text = Du\n1-2\tDu{BLANKS}\n1\tDe{BLANKS}\n2\tle{BLANKS}\n\n"


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", "A O\ncat B-a\n", ["A", "cat"]),
        ("a.conllu", CONLLU, ["De", "le"]),
        ("a.jsonl", '{"tokens": ["A", "cat"], "ner_tags": [0, 1]}\n', ["A", "cat"]),
        ("a.jsonl", '{"text": "A cat", "entities": []}\n{"text": "", "entities": []}\n', ["A cat", ""]),
        ("a.csv", "text,label\nA cat,up\n", ["A cat"]),
        ("a.csv", "labels,tokens,text\na;b,x,A cat\n,y,sat\n", ["A cat", "sat"]),
    ],
)
def test_words_without_their_labels(write, name, content, found, capsys):
    path = write(name, content)
    assert read_words_or_texts(path) == found
    assert capsys.readouterr().out.startswith(f"{path}: read as ")
    with refused(file="b.jsonl", line=2, problem="no key 'text'; found 'body'"):
        read_words_or_texts(write("b.jsonl", '{"text": "a"}\n{"body": "b"}\n'))


def test_ner_jsonl_equals_conll(write):
    conll = read_ner(write("a.txt", "A O\ncat B-a\n\nsat I-a\n"), NerFormat(repair=True))
    rows = [{"w": ["A", "cat"], "t": ["O", "B-a"]}, {"w": ["sat"], "t": ["I-a"]}, {"w": [], "t": []}]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    jsonl = read_ner(path, NerFormat(token_column="w", tag_column="t", repair=True))
    assert [(one.words, one.tags) for one in conll.sentences] == [(one.words, one.tags) for one in jsonl.sentences][:2]
    assert jsonl.sentences[2].words == [] and [one.document for one in jsonl.sentences] == [0, 1, 2]
    assert jsonl.repairs[0].startswith(f"{path}:2: I-a begins the sentence")


@pytest.mark.parametrize(
    ("content", "line", "problem", "expected"),
    [
        ('{"tokens": ["a"], "ner": ["O"]}', 1, "no key 'tags'; found 'tokens', 'ner'", "..."),
        ('{"tokens": ["a"], "tags": ["O", "O"]}', 1, "'tokens' has length 1, but 'tags' has...", "..."),
        ('{"tokens": ["a"], "tags": [0]}', 1, "'tags' contains the number 0", "strings, or..."),
        ('{"tokens": "a", "tags": ["O"]}', 1, "'tokens' is \"a\"", "a list..."),
        ('{"tokens": [""], "tags": ["O"]}', 1, "'tokens' contains \"\"", "..."),
        (
            '{"tokens": ["a"], "tags": ["O"], "tags": ["B-x"]}',
            1,
            "JSON that cannot be read (the key 'tags' more than...",
            "...",
        ),
        ('{"tokens": ["a"], "tags": ["B-x "]}', 1, "tag 'B-x '", "a type of visible characters..."),
        ('{"tokens": ["a"], "tags": ["B-x\\n"]}', 1, "tag 'B-x\\n'", "a type of visible characters..."),
        ('{"tokens": ["\\udc00"], "tags": ["O"]}', 1, "'tokens' contains \"\\udc00\"", "only non-empty..."),
        ('{"tokens": [{}], "tags": ["O"]}', 1, "'tokens' contains a JSON dict", "only non-empty..."),
        ('{"tokens": ["a"], "tags": ["O"]}\r{"tokens": ["b"], "tags": ["O"]}\r', 1, "not JSON (Extra data...", "..."),
        ('{"tokens": ["a"], "tags": ["O"]}\u2028{"tokens": ["b"], "tags": ["O"]}', 1, "not JSON (Extra data...", "..."),
        ('{"tokens": ["a"], "tags": ["O"]}\n\ufeff{"tokens": ["b"], "tags": ["O"]}', 2, "not JSON...", "..."),
        ("", "", "no sentences", "..."),
    ],
)
def test_bad_ner_jsonl(write, content, line, problem, expected):
    path = write("a.jsonl", content)
    with refused(file=path, line=line, problem=problem, expected=expected):
        read_ner(path)


def test_labels_unseen_in_training_are_refused(write):
    sentences = read_ner(write("a.conll", "A B-x\n\nb B-y\nc I-y\n\nd B-y\n")).sentences
    assert label_set(sentences) == ["x", "y"]
    check_labels_known(find_labels(sentences), ["x", "y", "z"], "a.conll")
    with refused(file="a.conll", line=3, problem="label 'y' (count 2, first here) was not in training"):
        check_labels_known(find_labels(sentences), ["x"], "a.conll")
    texts = [LabelledText("a", "up", 4)]
    assert label_set(texts) == ["up"]
    with refused(file="a.jsonl", line=4, problem="label 'up'...", expected="a training label: 'down'"):
        check_labels_known(find_labels(texts), ["down"], "a.jsonl")
