"""One rule says what a file holds: by its first lines, then by its suffix; doubt is an error."""

from pathlib import Path

import pytest

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.file_kind import detect_kind, first_lines, read_first_lines
from domainbert.corpus.report import SourceReport
from domainbert.corpus.sources import read_source
from tests.refusals import refused

TEXT, NER, CLASSES = ("lines", "jsonl", "conll", "csv", "tsv"), ("conll", "jsonl"), ("jsonl", "csv", "tsv")

TAGGED = "The DT O\ndrug NN B-chemical\n. . O\n"
TABBED = TAGGED.replace(" ", "\t")
PROSE = "The drug works.\nIt was given to patients with vitamin B-12 deficiency.\n"
ROW = '{"text": "a"}\n'


@pytest.mark.parametrize(
    ("name", "content", "expected", "said"),
    [
        ("a.txt", TAGGED, TEXT, "CoNLL (3 columns)"),
        ("a.txt", TAGGED, NER, "CoNLL (3 columns)"),
        ("a.txt.gz", TABBED, TEXT, "CoNLL (3 columns)"),
        ("a.txt", "word tag\nThe O\ndrug B-chemical\n. O\n", TEXT, "CoNLL (2 columns)"),
        ("a.txt", "-DOCSTART- -X- O\n\nThe\n", TEXT, "CoNLL (1 column)"),
        ("a.txt", "# global.columns = id form\n1 The\n", TEXT, "CoNLL (2 columns)"),
        ("a.txt", "The\tDT\ncat\tNN\n\nIt\tPR\n", TEXT, "CoNLL (2 columns)"),
        ("a.txt", TAGGED * 9 + "broken\n" + TAGGED, TEXT, "CoNLL (3 columns)"),
        ("a.txt", PROSE, TEXT, "lines of text"),
        ("a.txt", "blood type O\n", TEXT, "lines of text"),
        ("a.txt", "I like it\nI hate it\n", TEXT, "lines of text"),
        ("a.txt", "O governo caiu\nO tribunal decidiu\n", TEXT, "lines of text"),
        ("a.txt", "And I think so\nBut I doubt it\n", TEXT, "lines of text"),
        ("a.txt", "Cash B\nof I\nthe I\nstate I\nfell O\n", TEXT, "CoNLL (2 columns)"),
        ("a.txt", "blood type O\nnot type B-x but\nanything else\n", TEXT, "lines of text"),
        ("a.txt", "id\ttext\n1\tOne\t\n2\tTwo\n", TEXT, "lines of text"),
        ("a.txt", "", TEXT, "lines of text"),
        ("-", PROSE, TEXT, "lines of text"),
        ("-", TAGGED, TEXT, "CoNLL (3 columns)"),
        ("a.txt", ROW, TEXT, "JSONL"),
        ("a.data", "\n" + ROW, NER, "JSONL"),
        ("a.csv", ROW, CLASSES, "JSONL"),
        ("a.txt", ROW, CLASSES, "JSONL"),
        ("a.txt", "{broken\n" + ROW * 3, TEXT, "JSONL"),
        ("a.txt", "{a}\n{b}\nc\n", TEXT, "lines of text"),
        ("a.jsonl", "[1]\n", TEXT, "JSONL"),
        ("a.jsonl", TAGGED, TEXT, "CoNLL (3 columns)"),
        ("a.conll", "The\ncat\n", TEXT, "CoNLL (1 column)"),
        ("a.data", TAGGED, NER, "CoNLL (3 columns)"),
        ("a.tsv", TABBED, TEXT, "CoNLL (3 columns)"),
        ("a.tsv", "The\tDT\ncat\tNN\n", NER, "CoNLL (2 columns)"),
        ("a.tsv", "text\tlabel\nThe cat\tup\n", CLASSES, "TSV with a header"),
        ("a.csv", "text,label\nThe cat,up\n", CLASSES, "CSV with a header"),
        ("a.csv", "text\na\n", TEXT, "CSV with a header"),
    ],
)
def test_what_a_file_is_read_as(name, content, expected, said):
    assert str(detect_kind(Path(name), content.splitlines(), expected, "format")) == said


@pytest.mark.parametrize(
    ("name", "content", "kinds", "problem", "expected"),
    [
        (
            "a.txt",
            "1\tOne\n2\tTwo\n",
            TEXT,
            "the format is not evident from 2 columns separated by tabs, without tags",
            "set `format` to ...",
        ),
        ("a.tsv", "text\tlabel\na b\tup\n", TEXT, "the format is not evident from 2 columns...", "set `format` to ..."),
        ("a.xml", "<a>\n", NER, "unknown suffix '.xml' and unknown content", "CoNLL, JSONL (or set `format` to ..."),
        (
            "a.txt",
            TAGGED,
            CLASSES,
            "looks like CoNLL",
            "JSONL, CSV with a header, TSV with a header (or set `format` to ...",
        ),
        ("a.txt", "some text\n", CLASSES, "unknown suffix '.txt' and unknown content", "...set `format` to ..."),
    ],
)
def test_doubt_is_an_error(name, content, kinds, problem, expected):
    with refused(file=name, problem=problem, expected=expected):
        detect_kind(Path(name), content.splitlines(), kinds, "format")


@pytest.mark.parametrize(
    ("content", "read"), [("One.\nTwo.\n" * 50, 2), (ROW * 50, 1), ("-DOCSTART- O\n" + TAGGED, 2), (TAGGED * 50, 50)]
)
def test_no_more_lines_are_read_than_needed(tmp_path, content, read):
    """Of a stream, those that are read are waited for."""
    (tmp_path / "a.txt").write_text("\n" + content)
    assert len(read_first_lines(tmp_path / "a.txt")) == 1 + read
    blank = iter([(number, "") for number in range(10_000)])
    assert len(first_lines(blank)) == 500
    long = iter([(number, "O " * 300_000) for number in range(100)])
    assert len(first_lines(long)) == 2


def test_a_corpus_reads_the_words_of_conll_called_txt_and_counts_it(tmp_path):
    (tmp_path / "a.txt").write_text(TABBED + "\n" + TAGGED.replace(" ", "\t"))
    (tmp_path / "b.txt").write_text('{"text": "One."}\n{"text": "Two."}\n')
    (tmp_path / "c.txt").write_text(PROSE)
    counts = SourceReport("x")
    found = [text for _, text in read_source(Source(str(tmp_path)), counts)]
    assert found == ["The drug .", "The drug .", "One.", "Two.", PROSE.removesuffix("\n")]
    assert "3 files, 1 .txt read as CoNLL, 1 .txt read as JSONL" in counts.lines()[0]


def test_the_format_of_a_source_holds_for_all_its_files(tmp_path):
    (tmp_path / "a.txt").write_text(TAGGED)
    source = Source(str(tmp_path), format="text")
    assert [text for _, text in read_source(source, SourceReport("x"))] == [TAGGED.removesuffix("\n")]
    (tmp_path / "a.txt").rename(tmp_path / "a.iob")
    source = Source(str(tmp_path), format="conll")
    assert [text for _, text in read_source(source, SourceReport("x"))] == ["The drug ."]
    assert CorpusConfig([source]).input_files() == [tmp_path / "a.iob"]
    with refused(where="format", found="'pdf'"):
        Source("x", format="pdf")
