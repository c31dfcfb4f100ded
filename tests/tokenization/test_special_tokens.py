"""Special tokens around one text and around two, for 2, 3 and 4 special tokens, in memory and in the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from domainbert.data.packing import fill_rows
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.special_tokens import Part, Template, bert_template, roberta_template, template_of
from tests.refusals import refused


def lists(framed: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    return [part.tolist() for part in framed]


def test_bert() -> None:
    template = bert_template(2, 3)
    assert (template.num_special_tokens(), template.num_special_tokens(pair=True)) == (2, 3)
    assert template.special_ids == {2, 3}
    assert lists(template.frame([7, 8])) == [[2, 7, 8, 3], [0, 0, 0, 0]]
    assert lists(template.frame([7, 8], [9])) == [[2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1]]
    assert lists(template.frame([], np.zeros(0, dtype=np.uint16))) == [[2, 3, 3], [0, 0, 1]]


def test_roberta() -> None:
    template = roberta_template(0, 2)
    assert (template.num_special_tokens(), template.num_special_tokens(pair=True)) == (2, 4)
    assert lists(template.frame([4])) == [[0, 4, 2], [0, 0, 0]]
    assert lists(template.frame([4], [6])) == [[0, 4, 2, 2, 6, 2], [0] * 6]


@pytest.mark.parametrize("template", [bert_template(2, 3), roberta_template(3, 2)])
def test_tokenizer_files_frame_the_same(
    template: Template, make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path
) -> None:
    backend = make_tokenizer().backend
    backend.post_processor = template.processor(make_tokenizer().tokens)
    tokenizer = DomainTokenizer(backend)
    assert tokenizer.template == template == template_of(backend)
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).template == template
    file = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    first, second = tokenizer.encode(["the bank", "men's token"])
    one, two = file.encode("the bank"), file.encode("the bank", "men's token")
    assert lists(template.frame(first)) == [one.ids, one.type_ids]
    assert lists(template.frame(first, second)) == [two.ids, two.type_ids]


def test_read_from_other_post_processors() -> None:
    backend = bert_backend({token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), "x", "y"])}, {})
    assert template_of(backend) is None
    bert, roberta = (
        processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
        processors.RobertaProcessing(("x", 5), ("y", 6)),
    )
    for processor, expected in (
        (bert, bert_template(2, 3)),
        (roberta, roberta_template(6, 5)),
        (processors.ByteLevel(), None),
        (processors.Sequence([processors.ByteLevel(), bert]), bert_template(2, 3)),
    ):
        backend.post_processor = processor
        assert template_of(backend) == expected
        assert DomainTokenizer(backend).template == (expected or bert_template(2, 3))


def test_a_text_without_a_place_is_refused(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    backend = make_tokenizer().backend
    backend.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    with refused(problem="...turns A into A 3", expected="one special token, then text A..."):
        DomainTokenizer(backend)
    with refused(problem="...turns A and B into 2 A B A"):
        Template((Part(2, 0), Part("A", 0)), (Part(2, 0), Part("A", 0), Part("B", 0), Part("A", 0)))


@pytest.mark.parametrize("name", ["[C:L:0]", "$A", "a b", "$"])
def test_a_special_token_may_be_called_anything(name: str, tmp_path: Path) -> None:
    special_tokens = {**SPECIAL_TOKENS, "cls_token": name}
    vocab = {token: number for number, token in enumerate([*special_tokens.values(), "x"])}
    DomainTokenizer(bert_backend(vocab, {}, special_tokens), special_tokens).save(tmp_path)
    assert load_tokenizer(tmp_path).template == bert_template(2, 3)
    file = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert file.encode("x", "x").ids == [2, 5, 3, 5, 3]


def test_a_special_token_that_is_no_entry(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    backend = make_tokenizer(["x"]).backend
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 77))
    with refused(problem="...adds id 77", expected="an id of the tokenizer's 6 entries"):
        DomainTokenizer(backend)


def test_what_frames_texts_is_special_whatever_its_role(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    backend = make_tokenizer(["[BOS]", "x"]).backend
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[BOS]", 5))
    assert DomainTokenizer(backend).special_ids == {0, 1, 2, 3, 4, 5}, "so it is never masked, nor a replacement"


def test_a_tokenizer_may_frame_single_texts_only(
    make_tokenizer: Callable[..., DomainTokenizer], tmp_path: Path
) -> None:
    backend = make_tokenizer().backend
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    DomainTokenizer(backend).save(tmp_path)
    template = load_tokenizer(tmp_path).template
    assert template == Template(bert_template(2, 3).single, ())
    assert lists(template.frame([7])) == [[2, 7, 3], [0, 0, 0]]
    for ask in (lambda: template.frame([7], [8]), lambda: template.num_special_tokens(pair=True)):
        with refused(problem="...has no template for pairs", expected="another tokenizer"):
            ask()


def test_rows_of_pairs_and_single_texts() -> None:
    pair = (np.asarray([5, 6]), np.asarray([7]))
    packed = fill_rows([[np.asarray([8]), pair], [pair]], 10, bert_template(2, 3), pad_id=1)
    assert packed.input_ids.tolist() == [[2, 8, 3, 2, 5, 6, 3, 7, 3, 1], [2, 5, 6, 3, 7, 3, 1, 1, 1, 1]]
    assert packed.token_type_ids.tolist() == [[0] * 7 + [1, 1, 0], [0] * 4 + [1, 1] + [0] * 4]
    assert packed.position_ids.tolist() == [[0, 1, 2, 0, 1, 2, 3, 4, 5, 0], [0, 1, 2, 3, 4, 5, 0, 0, 0, 0]]
    assert packed.segment_ids.tolist() == [[1] * 3 + [2] * 6 + [0], [1] * 6 + [0] * 4]
    assert packed.first_positions.tolist() == [0, 3, 10]
    packed = fill_rows([[pair]], 8, roberta_template(0, 2), pad_id=1)
    assert packed.input_ids.tolist() == [[0, 5, 6, 2, 2, 7, 2, 1]] and not packed.token_type_ids.any()
