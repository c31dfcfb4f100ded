import gzip
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from domainbert.base.errors import DomainbertError
from domainbert.corpus import files
from domainbert.corpus.files import read_lines
from domainbert.labelled import conll
from domainbert.labelled.entities import NerFile
from domainbert.labelled.formats import NerFormat
from domainbert.serving.texts import read_texts
from domainbert.tasks.ner.files import read_ner
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import read as read_treebank
from tests.refusals import refused


def read_conll(path: Path, **format: object) -> NerFile:
    return read_ner(path, NerFormat(kind="conll", **format))


def read_words(path: Path, token_column: int = 0) -> list[list[str]]:
    return list(conll.read_words(path, read_lines(path), token_column))


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="file.conll"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.mark.parametrize("separator", [" ", "\t", "   "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators_line_ends_and_blank_lines(write, separator, end):
    rows = ["A x O", "cat x B-a", "", "", "  ", "sat x I-a", "down x I-a"]
    file = read_conll(write(end.join(row.replace(" ", separator) for row in rows)), repair=True)
    assert [sentence.words for sentence in file.sentences] == [["A", "cat"], ["sat", "down"]]
    assert [sentence.tags for sentence in file.sentences] == [["O", "B-a"], ["B-a", "I-a"]]
    assert [sentence.line for sentence in file.sentences] == [1, 6]
    assert [sentence.document for sentence in file.sentences] == [0, 1]
    assert (file.num_spans, file.num_words, len(file.repairs), file.scheme) == (2, 4, 1, "IOB2")


def test_only_spaces_or_tabs_separate(write):
    odd = ["10\u00a0000", "a\u2028b", "\u0085", "\x90", "\x1c", "\u200b", "x\x0cy"]
    file = read_conll(write("\n".join(f"{word} O" for word in odd)))
    assert file.sentences[0].words == odd
    file = read_conll(write("New York\tB-a\n\u00a0\tO\n"))
    assert file.sentences[0].words == ["New York", "\u00a0"]


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".zst", lambda raw: pa.Codec("zstd").compress(raw, asbytes=True))]
)
def test_byte_order_mark_and_compression(write, suffix, pack):
    path = write(pack(b"\xef\xbb\xbfA O\n"), f"file.conll{suffix}")
    assert read_conll(path).sentences[0].words == ["A"]
    with refused(problem="cannot be read...", expected=f"a whole {suffix} file"):
        read_conll(write(b"A O\n", f"file.conll{suffix}"))


def test_documents_begin_at_docstart(write):
    content = "-DOCSTART- -X- O\n\na O\n\nb O\n\n-DOCSTART-\nc O\n-DOCSTART-\n\n-DOCSTART-\n\nd O\n-DOCSTART-x O\n"
    file = read_conll(write(content))
    assert [(sentence.words, sentence.document) for sentence in file.sentences] == [
        (["a"], 0),
        (["b"], 0),
        (["c"], 1),
        (["d", "-DOCSTART-x"], 2),
    ]
    assert "4 sentences in 3 documents, 5 words" in file.describe()


def test_names_of_columns_after_a_mark_are_refused(write):
    path = write("-DOCSTART- -X- O\n\nword pos ner\nA D O\n\n-DOCSTART- -X- O\n\ncat N B-a\n")
    with refused(file=path, line=3, problem="-DOCSTART- before the names of the columns", expected="...first line"):
        read_conll(path, token_column="word", tag_column="ner")
    path = write("word pos ner\n\n-DOCSTART- -X- O\n\nA D O\n\n-DOCSTART- -X- O\n\ncat N B-a\n")
    file = read_conll(path, token_column="word", tag_column="ner")
    assert [(item.words, item.document) for item in file.items] == [(["A"], 0), (["cat"], 1)]
    assert [unit.line for unit in file.units()] == [3, 7]


@pytest.mark.parametrize("header", ["word pos ner\n\n", "# global.columns = word pos ner\n"])
def test_columns_by_name(write, header):
    file = read_conll(write(header + "A D O\ncat N B-a\n"), token_column="word", tag_column="ner")
    assert (file.sentences[0].words, file.sentences[0].tags) == (["A", "cat"], ["O", "B-a"])
    with refused(where="format.tag_column", problem="no column 'tag'", hint="the header names 'word', 'pos', 'ner'"):
        read_conll(write(header + "A D O\n"), token_column="word", tag_column="tag")
    with refused(where="format.tag_column", problem="2 columns 'ner'", hint="the header names 'word', 'ner', 'ner'"):
        read_conll(write(header.replace("pos", "ner") + "A D O\n"), token_column="word", tag_column="ner")


def test_columns_by_number(write):
    path = write("O A x\nB-a cat x\n")
    file = read_conll(path, token_column=1, tag_column=-3)
    assert (file.sentences[0].words, file.sentences[0].tags) == (["A", "cat"], ["O", "B-a"])
    assert read_words(path, token_column=1) == [["A", "cat"]]
    with refused(where="format.tag_column", problem="no column 3", expected="0 to 2"):
        read_conll(path, tag_column=3)
    with refused(where="format.tag_column", problem="column 2 of 3 has the words", expected="tags"):
        read_conll(path, token_column=2)


@pytest.mark.parametrize(
    ("content", "line", "where", "problem", "expected"),
    [
        ("A x O\nb O\n", 2, "...", "2 columns separated by spaces", "3 as in line 1"),
        ("A\tO\nb\tO\nc O\n", 3, "...", "1 column separated by tabs", "2 as in line 1"),
        ("# id 1\nA\tO\nb\tO\n", 1, "...", "1 column separated by tabs", "2 as in line 2"),
        ("A\tO\n\tO\n", 2, "...", "column 0 is empty", "..."),
        ("A O\nb O\nc\td O\n", 3, "...", "a tab", "spaces..."),
        ("A O\nb N\n", 2, "...", "unknown tag 'N'", "..."),
        ("A O\nb I-a\nc B-b\n", 2, "...", "I-a follows O, which IOB2 forbids", "B-a..."),
        ("A O\ncaf\xe9 O\n".encode("latin-1"), 2, "...", "byte 4 of the line, 0xe9, is not UTF-8", "UTF-8 text"),
        ("A O\nb", 2, "...", "1 column separated by spaces", "2 as in line 1"),
        ("A O\n\u00a0\nb O\n", 2, "...", "1 column separated by spaces", "2 as in line 1"),
        ("A\u00a0O\n", "", "format.tag_column", "column 0 of 1 has the words", "tags"),
        ("A O\rb B-x\r", 1, "...", "a carriage return inside the line", "only \\n or \\r\\n as..."),
        ("A O\nb B-x\r\r\n", 2, "...", "a carriage return inside the line", "..."),
        ("A O\n\ufeffb O\n", 2, "...", "a byte order mark", "it only at the beginning of the file"),
        ("\ufeff\ufeffA O\n", 1, "...", "a byte order mark", "it only..."),
        ("-DOCSTART- O\rb B-x\nc O\n", 1, "...", "U+000D after -DOCSTART-", "only..."),
        ("-DOCSTART- O\u2028b B-x\nc O\n", 1, "...", "U+2028 after -DOCSTART-", "only..."),
        ("-DOCSTART- B-x\nb O\n", 1, "...", "-DOCSTART- has the tag 'B-x'", "O"),
        ("A O\nb B-x\u00a0\n", 2, "...", "tag 'B-x\\xa0'", "a type of visible characters..."),
        ("A\tO\nb\tB-x \n", 2, "...", "tag 'B-x '", "a type of visible characters..."),
        ("A O\nb B-\x00x\n", 2, "...", "byte 5 of the line, 0x00, is a NUL...", "UTF-8..."),
        ("A O\nb \u200bO\n", 2, "...", "unknown tag '\\u200bO'", "..."),
        (f"A O\nb {'x' * 100_000}\n", 2, "...", "unknown tag 'xxxxxxxxxxxx...xxxxxxxxxxxxx'", "..."),
        ("A S-a\nb B-a\nc E-a\nd L-a\n", 4, "...", "tags with E-, L-, S- in one file", "E- and S- (BIOES), or..."),
        ("A O\n".encode("utf-16"), 1, "...", "byte 1 of the line, 0xff, is not UTF-8", "..."),
        ("A O\n".encode("utf-16-le"), 1, "...", "byte 2 of the line, 0x00, is a NUL...", "..."),
        (b"A O\n\xed\xa0\x80 O\n", 2, "...", "byte 1 of the line, 0xed, is not UTF-8", "..."),
        ("", "", "...", "no words", "..."),
        ("\ufeff", "", "...", "no words", "..."),
        ("\n-DOCSTART- O\n\n", "", "...", "no words", "..."),
    ],
)
def test_bad_files_name_the_line(write, content, line, where, problem, expected):
    path = write(content)
    with refused(file=path, line=line, where=where, problem=problem, expected=expected):
        read_conll(path)


@pytest.mark.parametrize("character", "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
def test_a_break_of_another_kind_is_data_in_a_word_and_refused_beside_it(write, character):
    path = write(f"a{character}b L{character} B-x\nc d O\n")  # a lemma repeats its word
    assert read_conll(path).sentences[0].words == [f"a{character}b", "c"]
    path = write(
        character.join(["A O", "b B-x", "c O"]) + "\n"
    )  # three lines for another program, one of 4 columns here
    for read in (read_conll, read_words):
        with refused(line=1, problem=f"U+{ord(character):04X} in column 1", expected="only..."):
            read(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: raw.replace(b"\n", b" \n"),
        lambda raw: raw.replace(b"\n\n", b"\n \t\n\n"),
        lambda raw: raw.replace(b"-DOCSTART-", b"  -DOCSTART-"),
        lambda raw: raw.replace(b" ", b"   "),
        lambda raw: raw.replace(b" ", b"\t"),
        lambda raw: raw.rstrip(b"\n"),
    ],
)
def test_changes_that_must_not_matter(write, change):
    raw = b"-DOCSTART- O\n\nA O\ncat B-a\n\n-DOCSTART- O\n\n\x01 B-a\n\xc2\xa0x I-a\n"
    found, expected = read_conll(write(change(raw))), read_conll(write(raw, "whole.conll"))
    assert expected.num_spans == 2 and expected.sentences[1].words == ["\x01", "\u00a0x"]
    for one, other in zip(found.sentences, expected.sentences, strict=True):
        assert (one.words, one.tags, one.document) == (other.words, other.tags, other.document)


def test_an_extremely_long_line(write, monkeypatch):
    path = write("A O\n" + "x" * 2_000_000 + " B-a\n")
    assert len(read_conll(path).sentences[0].words[1]) == 2_000_000
    monkeypatch.setattr("domainbert.corpus.files.MAX_DOCUMENT_BYTES", 1024**2)
    with refused(file="file.conll", line=2, problem="a line of more than 1 MiB"):
        read_conll(path)


@pytest.mark.parametrize("read", [read_conll, partial(read_words, token_column=1), partial(read_treebank, Parsing())])
def test_a_sentence_without_an_end_is_not_read_to_its_end(write, monkeypatch, read):
    """Compressed, a file of a few kilobytes may hold a sentence of any length."""
    rows = "".join(f"{number}\tA\tO" + "\t_" * 7 + "\n" for number in range(1, 9))
    path = write(gzip.compress(f"{rows[: len(rows) // 2]}\n{rows * 100}".encode()), "file.conll.gz")
    numbers = count(1)
    decode = files._decode
    monkeypatch.setattr("domainbert.corpus.files._decode", lambda *arguments: next(numbers) and decode(*arguments))
    monkeypatch.setattr("domainbert.labelled.conll._MAX_LINES", 8)
    with refused(file="file.conll.gz", line=14, problem="the sentence has more than 8 lines"):
        read(path)
    assert next(numbers) == 15


def test_missing_file(tmp_path):
    with refused(file="none.conll", problem="cannot be read (No such file or directory)"):
        read_conll(tmp_path / "none.conll")


def test_many_problems_come_together_with_their_number(write):
    with pytest.raises(DomainbertError) as error:
        read_conll(write("A O\n" * 40 + "b\n" * 30))
    lines = str(error.value).splitlines()
    assert lines[0].endswith("30 problems") and len(lines) == 5 and lines[-1].strip() == "... and 27 more like this"


def test_repairs_are_listed(write):
    file = read_conll(write("A O\nb I-a\nc B-b\n"), repair=True)
    assert file.sentences[0].tags == ["O", "B-a", "B-b"]
    assert [repair.partition(":2: ")[2] for repair in file.repairs] == [
        "I-a follows O, which IOB2 forbids; read as B-a"
    ]
    assert "tags repaired (1):" in file.describe() and file.repairs[0] in file.describe()


@pytest.mark.parametrize("tags", [["B", "I", "O", "B"], ["B", "E", "O", "S"], ["I", "I", "O", "I"]])
def test_tags_without_types_are_entities_of_one_type(write, tags):
    """As in BioBERT's sets."""
    file = read_conll(write("".join(f"é{number}\t{tag}\n" for number, tag in enumerate(tags))))
    assert file.sentences[0].tags == ["B-_", "I-_", "O", "B-_"]
    assert file.describe().endswith("\n  changed: tags without a type, such as B, read as B-_ (3)")
    with refused(line=2, problem="unknown tag 'I'", expected="O, B-TYPE or I-TYPE..."):
        read_conll(write("A B-x\nb I\n"))


def test_a_tag_that_leaves_its_entity_open_is_named_itself(write):
    expected = "S-x (format.repair: true rewrites it)"
    with refused(line=2, problem="B-x is followed by O, which BIOES forbids", expected=expected):
        read_conll(write("A S-x\nb B-x\nc O\nd S-x\n"))
    assert read_conll(write("A S-x\nb B-x\nc O\n"), repair=True).repairs[0].endswith("BIOES forbids; read as S-x")


def test_other_schemes_become_iob2(write):
    file = read_conll(write("A U-a\nb B-a\nc L-a\nd O\n"))
    assert (file.scheme, file.sentences[0].tags) == ("BILOU", ["B-a", "B-a", "I-a", "O"])
    file = read_conll(write("A I-a\nb B-a\nc I-b\nd O\n"))
    assert (file.scheme, file.sentences[0].tags) == ("IOB1", ["B-a", "B-a", "B-b", "O"])


@pytest.mark.parametrize(
    ("split", "sentences", "spans", "repairs"),
    [("train", 4632, 14816, 5), ("dev", 1158, 3800, 0), ("test", 1732, 4956, 13)],
)
def test_econ_ie_keeps_every_entity(econ_data, split, sentences, spans, repairs):
    file = read_conll(econ_data / "ner" / f"{split}.conll", repair=True)
    assert (len(file.sentences), file.num_spans, len(file.repairs)) == (sentences, spans, repairs)
    assert file.scheme == "IOB2" and "columns separated by spaces" in file.layout


def test_econ_ie_test_is_refused_without_repair(econ_data):
    with refused(file="test.conll", line=1, problem="I-effect_size begins the sentence...") as caught:
        read_conll(econ_data / "ner" / "test.conll")
    assert len(caught.value.errors) == 13


def test_ncbi_disease(bio_data):
    file = read_conll(bio_data / "ner" / "ncbi-disease" / "test.txt")
    assert (len(file.sentences), file.num_spans, file.repairs) == (940, 960, [])
    assert file.layout.startswith("CoNLL, 4 columns separated by tabs")


def test_the_numbers_of_a_treebank_are_not_taken_for_words(write):
    path = write("".join(f"{n}\t{word}" + "\t_" * 8 + "\n" for n, word in enumerate(("Cash", "helped"), 1)))
    with refused(line=1, problem="column 0 holds word numbers,...", expected="token_column: 1"):
        read_words(path)
    assert read_words(path, token_column=1) == [["Cash", "helped"]]
    assert read_words(write("1 O\n2 O\n")) == [["1", "2"]]


def test_the_words_of_a_treebank_are_read_without_what_stands_beside_them(tmp_path):
    rest = "\t_" * 8 + "\n"
    words = ["1-2\tdu", "1\tde", "2\tle", "2.1\tun", "3\t#"]
    path = tmp_path / "a.conllu"
    path.write_text(f"# newdoc\n# text = du # un\n{''.join(word + rest for word in words)}\n# text = Là\n1\tLà{rest}\n")
    kind, items = read_texts(path, "auto", "text", 1)
    assert str(kind) == "CoNLL"
    assert [content for _, content in items] == [["de", "le", "#"], ["Là"]]
    with refused(line=4, problem="column 0 holds word numbers,...", expected="token_column: 1"):
        read_words(path)


def test_a_word_that_is_a_number_sign_is_a_word(write):
    assert read_words(write("# O\n1-2 O\n")) == [["#", "1-2"]]
    assert read_words(write("#\tO\nC\tO\n")) == [["#", "C"]]
