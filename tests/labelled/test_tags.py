import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from domainbert.labelled.tag_schemes import (
    detect_scheme,
    entity_types,
    find_violations,
    labels_of_types,
    spans_from_tags,
    split_tag,
    tags_from_spans,
    to_iob2,
)
from tests.refusals import refused


def tag_lists(prefixes):
    tags = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("a", "b-c"))]
    return st.lists(st.sampled_from(tags), max_size=12)


@st.composite
def spans_and_length(draw):
    spans, start = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=5)):
        spans.append((start + gap, start + gap + length, draw(st.sampled_from(["a", "b"]))))
        start += gap + length
    return spans, start + draw(st.integers(0, 2))


def write_in(scheme, spans, num_words):
    """An independent writer of each scheme."""
    tags = ["O"] * num_words
    for number, (start, end, kind) in enumerate(spans):
        touches = number > 0 and spans[number - 1][1:] == (start, kind)
        for index in range(start, end):
            first, last = index == start, index == end - 1
            if scheme == "IOB1":
                prefix = "B" if first and touches else "I"
            elif scheme == "IOB2":
                prefix = "B" if first else "I"
            else:
                single, final = ("S", "E") if scheme == "BIOES" else ("U", "L")
                prefix = single if first and last else "B" if first else final if last else "I"
            tags[index] = f"{prefix}-{kind}"
    return tags


@given(tag_lists("BIES"))
def test_spans_are_those_of_conlleval(tags):
    # seqeval's get_entities is a port of conlleval with inclusive ends.
    assert spans_from_tags(tags) == [(start, end + 1, kind) for kind, start, end in get_entities(tags)]


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "BIOES", "BILOU"])
@given(spans_and_length())
def test_every_scheme_is_read_exactly_and_is_valid(scheme, case):
    spans, num_words = case
    tags = write_in(scheme, spans, num_words)
    assert spans_from_tags(tags) == spans
    assert find_violations(tags, scheme) == []
    assert to_iob2(tags) == write_in("IOB2", spans, num_words) == tags_from_spans(spans, num_words)


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "BIOES", "BILOU"])
@given(tag_lists("BIESLU"))
def test_violations_are_the_tags_that_the_scheme_writes_otherwise(scheme, tags):
    valid = write_in(scheme, spans_from_tags(tags), len(tags))
    found = find_violations(tags, scheme)
    changed = [(index, new) for index, (old, new) in enumerate(zip(tags, valid, strict=True)) if old != new]
    assert [(violation.index, violation.expected) for violation in found] == changed
    for violation in found:  # the tag that is wrong is named, and another one is expected: never "O ...; expected O"
        assert violation.reason.startswith(tags[violation.index]) and violation.expected != tags[violation.index] != "O"


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([["O", "I-a", "I-a"], ["I-a", "B-a"], ["I-a", "O"]], "IOB1"),
        ([["B-a", "I-a", "O", "B-a"], ["B-a"], ["I-a", "O"]], "IOB2"),  # one stray I- does not decide
        ([["O", "S-a", "B-a", "E-a"]], "BIOES"),
        ([["O", "B-a", "L-a"]], "BILOU"),
        ([["O", "O"], []], "IOB2"),
    ],
)
def test_scheme_is_detected(sentences, scheme):
    assert detect_scheme(sentences) == scheme


def test_mixed_schemes_are_refused():
    with refused(problem="...L-, S- in one file", expected="E- and S-..."):
        detect_scheme([["S-a", "L-a"]])


@pytest.mark.parametrize(
    ("tags", "scheme", "reasons"),
    [
        (["I-a", "O", "I-a"], "IOB2", ["I-a begins the sentence, which IOB2", "I-a follows O, which IOB2"]),
        (["B-a", "I-b"], "IOB2", ["I-b follows B-a, which IOB2"]),
        (["B-a", "I-a", "B-a"], "IOB1", ["B-a begins the sentence, which IOB1"]),
        (["B-a", "O"], "BIOES", ["B-a is followed by O, which BIOES"]),
        (["B-a", "I-a", "B-a", "L-a"], "BILOU", ["I-a is followed by B-a, which BILOU"]),
        (["S-a", "I-a", "E-a"], "BIOES", ["I-a follows S-a, which BIOES"]),
        (["B-a", "E-b"], "BIOES", ["B-a is followed by E-b, which BIOES", "E-b follows B-a, which BIOES"]),
        (["O", "B-a"], "BIOES", ["B-a ends the sentence, which BIOES"]),
        (["S-a"], "IOB2", ["S-a is not a tag of IOB2"]),
    ],
)
def test_what_a_scheme_forbids_is_told(tags, scheme, reasons):
    found = [violation.reason for violation in find_violations(tags, scheme)]
    assert len(found) == len(reasons)
    assert all(one.startswith(reason) for one, reason in zip(found, reasons, strict=True)), found


@pytest.mark.parametrize("tag", ["", "B", "B-", "b-a", "X-a", "NN", "O ", "-a"])
def test_unknown_tags_are_refused(tag):
    with refused(problem="unknown tag..."):
        split_tag(tag)


def test_overlapping_spans_have_no_tags():
    with pytest.raises(ValueError, match="overlaps"):
        tags_from_spans([(0, 2, "a"), (1, 3, "b")], 3)


def test_labels_and_types():
    assert labels_of_types(["b", "a"]) == ["O", "B-a", "I-a", "B-b", "I-b"]
    assert entity_types(labels_of_types(["b", "a-c"])) == ["a-c", "b"]
