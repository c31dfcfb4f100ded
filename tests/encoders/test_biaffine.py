"""The biaffine head against its formulas in NumPy, word by word; and its folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from domainbert.encoders.biaffine import Biaffine
from domainbert.encoders.families import build_model
from domainbert.encoders.head_config import HeadConfig
from domainbert.models.folder import open_model
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.serving.onnx.decoders import BiaffineDecoder
from tests.encoders.test_hugging_face import batch, make_tokenizer
from tests.refusals import refused

HIDDEN, LABELS, ARC, LABEL = 6, 3, 4, 2
LENGTHS = (4, 1, 3)


@pytest.fixture
def head() -> Biaffine:
    torch.manual_seed(0)
    return Biaffine(HIDDEN, LABELS, 0.5, ARC, LABEL).double().eval()


@pytest.fixture
def hidden() -> torch.Tensor:
    return torch.randn(3, 4, HIDDEN, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def test_scores_are_numpys(head: Biaffine, hidden: torch.Tensor) -> None:
    words = head(hidden)
    linear = numbers(hidden) @ numbers(head.project.weight).T + numbers(head.project.bias)
    projected = np.where(linear > 0, linear, np.expm1(linear))
    np.testing.assert_allclose(numbers(words), projected, rtol=1e-12)
    arcs = numbers(head.arc_scores(words, torch.tensor(LENGTHS)))
    matrix, bias = numbers(head.arc)[:-1], numbers(head.arc)[-1]
    root = numbers(head.root)
    heads = torch.tensor([[2, 0, 4, 1], [0, 0, 0, 0], [3, 3, 0, 0]])
    real = torch.arange(4) < torch.tensor(LENGTHS).unsqueeze(1)
    labels = np.split(numbers(head.label_scores(words, heads, real)), np.cumsum(LENGTHS)[:-1])
    of_dependent = projected[..., :ARC], projected[..., ARC : ARC + LABEL]
    of_head = projected[..., ARC + LABEL : 2 * ARC + LABEL], projected[..., 2 * ARC + LABEL :]
    for row, length in enumerate(LENGTHS):
        for word in range(length):
            d, e = of_dependent[0][row, word], of_dependent[1][row, word]
            for other in range(5):
                h = root[:ARC] if other == 0 else of_head[0][row, other - 1]
                wanted = d @ matrix @ h + bias @ h if other <= length and other != word + 1 else -np.inf
                assert arcs[row, word, other] == pytest.approx(wanted, abs=1e-12)
            chosen = int(heads[row, word])
            f = root[ARC:] if chosen == 0 else of_head[1][row, chosen - 1]
            for label, (weight, score) in enumerate(zip(numbers(head.label), labels[row][word], strict=True)):
                bilinear = e @ weight[:-1, :-1] @ f + weight[-1, :-1] @ f + e @ weight[:-1, -1] + weight[-1, -1]
                assert score == pytest.approx(bilinear, abs=1e-12), label


def test_the_likelihood_has_the_right_gradient(head: Biaffine, hidden: torch.Tensor) -> None:
    heads, labels = torch.tensor([[2, 0, 4, 1]]), torch.tensor([[0, 2, 1, 1]])
    hidden = hidden[:1].requires_grad_()

    def loss(hidden: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        words = head(hidden)
        arcs = head.arc_scores(words, torch.tensor([4]))
        labelled = head.label_scores(words, heads, heads >= 0).unsqueeze(0)
        return torch.stack(
            [torch.nn.functional.cross_entropy(one[0], two[0]) for one, two in ((arcs, heads), (labelled, labels))]
        ).sum()

    assert torch.autograd.gradcheck(loss, (hidden, *head.parameters()))


def test_other_sentences_and_padding_change_nothing(head: Biaffine, hidden: torch.Tensor) -> None:
    words = head(hidden)
    together = head.arc_scores(words, torch.tensor(LENGTHS))
    for row, length in enumerate(LENGTHS):
        alone = head.arc_scores(words[row : row + 1, :length], torch.tensor([length]))
        np.testing.assert_allclose(numbers(together[row, :length, : length + 1]), numbers(alone[0]), rtol=1e-12)
        assert np.isneginf(numbers(together[row, :length, length + 1 :])).all()
        probabilities = numbers(torch.softmax(together[row, :length], dim=-1))
        np.testing.assert_allclose(probabilities.sum(axis=-1), 1)


def test_dropout_is_on_states_and_projections(head: Biaffine) -> None:
    head.train()
    with torch.no_grad():
        head.project.weight.zero_()
        head.project.bias.fill_(1.0)
    found = head(torch.ones(500, HIDDEN, dtype=torch.float64))
    assert set(numbers(found).round(6).ravel()) == {0.0, 2.0}
    assert float((found == 0).double().mean()) == pytest.approx(0.5, abs=0.03)


def test_the_folder_of_any_family_is_that_of_its_encoder(reference: Any, tmp_path: Path) -> None:
    """`transformers` finds the encoder in it, with equal states; here the head comes back with its sizes."""
    torch.manual_seed(0)
    sizes = {"arc_size": ARC, "label_size": LABEL}
    model = build_model(reference.config, reference.vocabulary, HeadConfig("biaffine", **sizes), LABELS).eval()
    save_model(tmp_path, model, reference.config, make_tokenizer(reference), "biaffine", "card", ["x", "y", "z"])
    theirs, info = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(theirs) is reference.classes[None]
    assert all(name.startswith("biaffine.") for name in info["unexpected_keys"])
    assert all("pooler" in name for name in info["missing_keys"])
    tokens = batch()
    with torch.inference_mode():
        wanted = theirs.eval()(tokens.input_ids).last_hidden_state
        torch.testing.assert_close(model.encoder(tokens), wanted, atol=1e-5, rtol=0)
    again, folder, made = load_model(tmp_path, "biaffine")
    assert made == [] and (folder.head, folder.labels, folder.head_config.sizes) == ("biaffine", ("x", "y", "z"), sizes)
    for name, parameter in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], parameter, atol=0, rtol=0, msg=name)


@pytest.mark.parametrize("size", [0, "100", None, 1.5])
def test_sizes_that_are_none_are_named(reference: Any, tmp_path: Path, size: Any) -> None:
    model = build_model(reference.config, reference.vocabulary, "biaffine", LABELS)
    save_model(tmp_path, model, reference.config, make_tokenizer(reference), "biaffine", "card", ["x", "y", "z"])
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, "domainbert_arc_size": size}))
    with refused(file="config.json", where="domainbert_arc_size", expected="an integer from 1 to..."):
        open_model(tmp_path)


def test_what_stands_beside_an_exported_model(head: Biaffine, tmp_path: Path) -> None:
    other = Biaffine(HIDDEN, LABELS, 0.0, ARC, LABEL)
    with refused(file="biaffine.safetensors", problem="cannot be read..."):
        BiaffineDecoder(other).read(tmp_path)
    BiaffineDecoder(head.float()).write(tmp_path)
    BiaffineDecoder(other).read(tmp_path)
    assert all(torch.equal(getattr(other, name), getattr(head, name)) for name in ("root", "arc", "label"))
    assert other.root.requires_grad
    with refused(problem="'arc' has shape (5, 4)", expected="shape (4, 3) as in config.json"):
        BiaffineDecoder(Biaffine(HIDDEN, LABELS, 0.0, ARC - 1, LABEL + 1)).read(tmp_path)
