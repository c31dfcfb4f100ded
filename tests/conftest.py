"""Fixtures for all tests: real data where there is any, and no network."""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Before any library reads them: no test downloads; sums have one order on every machine, and busy cores are not shared.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("untimed", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("untimed"), max_examples=150)  # of make test-all
settings.load_profile("untimed")  # a busy machine is slow, and no test measures time

_DATA = os.environ.get("DOMAINBERT_DATA")


def pytest_collection_finish() -> None:
    """Exclude the imported libraries from garbage collections, which would visit their millions of objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _recipes_have_their_own_data() -> None:
    """No recipe takes its variable `data` from the environment, where it names the real data."""
    os.environ.pop("DOMAINBERT_DATA", None)


@pytest.fixture(autouse=True)
def _no_import_stays_allowed() -> Iterator[None]:
    """What a test allows by `--allow-import` is not allowed in the next one of its process."""
    yield
    from domainbert.base.choices import allow_imports

    allow_imports(None)


@pytest.fixture(autouse=True)
def few_predictions_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of a model takes one round: a stage would predict the test set ten times more to measure it."""
    if (cost := sys.modules.get("domainbert.serving.cost")) is not None:
        monkeypatch.setattr(cost, "_ROUNDS", 1)
        monkeypatch.setattr(cost, "_PREDICTIONS", {1: 1, 32: 1})


def _data_folder(name: str) -> Path:
    if not _DATA:
        pytest.skip("DOMAINBERT_DATA is not set; it names the folder with the real data")
    folder = Path(_DATA) / name
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    return folder


@pytest.fixture(scope="session")
def econ_data() -> Path:
    """The economics data: `corpus.jsonl.gz`, `ner/`, `stance/`."""
    return _data_folder("econ")


@pytest.fixture(scope="session")
def bio_data() -> Path:
    """The biomedical data: `corpus.jsonl.gz`, `ner/`, `citation/`, `chemprot/`."""
    return _data_folder("bio")


@pytest.fixture
def fake_stages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stage table holds `make`, `use` and `score` of `fake_stages.py` only."""
    from domainbert.runner.stage_table import STAGES

    spec = importlib.util.spec_from_file_location("fake_stages", Path(__file__).with_name("fake_stages.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fake_stages", module)
    spec.loader.exec_module(module)
    for name in list(STAGES):
        monkeypatch.delitem(STAGES, name)
    for name in ("make", "use", "score"):
        monkeypatch.setitem(STAGES, name, f"fake_stages:{name}")
    return module


class Runs:
    """Stage folders below one, on tiny synthetic data, each by a name; `results` holds what the stages returned."""

    def __init__(self, root: Path) -> None:
        from domainbert.corpus.config import CorpusConfig, Source
        from domainbert.encoders.bert.config import BertConfig
        from domainbert.tasks.classification.config import Classification
        from domainbert.tasks.ner.config import Ner

        self.root = root
        self.training = {"precision": "32-true", "loggers": (), "trainer": {"accelerator": "cpu", "devices": 1}}
        self.results: dict[str, dict[str, Any]] = {}
        self.corpus = CorpusConfig([Source(str(root / "sample" / "corpus.jsonl"))], validation_fraction=0.1)
        self.encoder = BertConfig(64, 2, 2, 128, max_position_embeddings=96)
        self.tasks = {"ner": Ner(head="linear"), "classification": Classification()}

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def labelled(self, task: str, split: str) -> Path:
        """The labelled file of a task."""
        return self / f"sample/{task}/{split}.{'conll' if task == 'ner' else 'jsonl'}"

    def run(self, name: str, stage: Callable[..., dict[str, Any]], **arguments: Any) -> Path:
        """Run a stage into a new folder, as the runner does."""
        from domainbert.training.checkpoint_files import remove_checkpoints

        out = self / name
        out.mkdir(parents=True)
        self.results[name] = stage(out=out, **arguments)
        remove_checkpoints(out)
        return out

    def pretrain(self, name: str, max_steps: int = 20, **changes: Any) -> Path:
        """Pretrain, with `changes` to the arguments."""
        from domainbert.stages.pretrain import pretrain
        from domainbert.training.config import Budget, OptimConfig

        usual = {"prepared": [self / "prepare"], "encoder": self.encoder, "max_length": 64, "batch_size": 16}
        usual |= {"optim": OptimConfig(lr=5e-3), "budget": Budget(max_steps=max_steps)}
        return self.run(name, pretrain, **{**self.training, **usual, **changes})

    def finetune(self, name: str, task: str, /, **changes: Any) -> Path:
        """Fine-tune on a task, with `changes` to the arguments."""
        from domainbert.stages.finetune import finetune
        from domainbert.training.config import OptimConfig

        usual = {"model": self / "pretrain", "task": self.tasks[task], "batch_size": 8, "seeds": (1, 2)}
        usual |= {split: self.labelled(task, split) for split in ("train", "validation")}
        usual |= {"max_epochs": 5 if task == "ner" else 2, "optim": OptimConfig(lr=2e-3, head_lr=5e-3)}
        return self.run(name, finetune, **{**self.training, **usual, **changes})

    def evaluate(self, name: str, task: str, models: dict[str, Path], /, **changes: Any) -> Path:
        """Evaluate models on the test set of a task, with `changes` to the arguments."""
        from domainbert.stages.evaluate import evaluate

        usual = {"task": self.tasks[task], "test": self.labelled(task, "test"), "bootstrap_resamples": 100}
        return self.run(name, evaluate, **{**usual, "models": models, **changes})


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], tuple[Path, Any]]:
    """Make a folder once for all workers of a session; the others wait. Return it and what its function returned."""
    common = tmp_path_factory.getbasetemp()
    common = common.parent if "PYTEST_XDIST_WORKER" in os.environ else common

    def made(name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
        folder, result = common / f"once-{name}", common / f"once-{name}.pickle"
        with (common / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                folder.mkdir()  # where a worker has failed, the next one fails at once
                result.write_bytes(pickle.dumps(make(folder)))
        return folder, pickle.loads(result.read_bytes())

    return made


@pytest.fixture(scope="session")
def runs(make_once: Callable[[str, Callable[[Path], Any]], tuple[Path, Any]]) -> Runs:
    """Every stage once, from synthetic data to scores: about 20 s on one core, shared by all workers of a session."""
    folder, results = make_once("runs", _every_stage)
    made = Runs(folder)
    made.results |= results
    return made


def _every_stage(folder: Path) -> dict[str, dict[str, Any]]:
    """Run the stages into `folder`, and return their results."""
    import torch

    from domainbert.stages.prepare import prepare
    from domainbert.stages.sample import sample
    from domainbert.stages.vocab import vocab

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = Runs(folder)
    sizes = {"corpus_documents": 150, "train_sentences": 120, "validation_sentences": 40, "test_sentences": 110}
    sizes |= {"train_texts": 90, "validation_texts": 30, "test_texts": 40}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)  # it takes a second
        patch.setattr("domainbert.serving.cost._ROUNDS", 1)
        made.run("sample", sample, **sizes)
        made.run("vocab", vocab, corpus=made.corpus, vocab_size=1024, model_max_length=96)
        made.run("prepare", prepare, corpus=made.corpus, tokenizer=made / "vocab", num_workers=0)
        made.pretrain("pretrain")
        for task in made.tasks:
            made.finetune(f"{task}-pretrained", task)
            made.finetune(f"{task}-scratch", task, init="random")
            models = {name: made / f"{task}-{name}" for name in ("pretrained", "scratch")}
            made.evaluate(task, task, models, train=made.labelled(task, "train") if task == "ner" else None)
    torch.set_num_threads(threads)
    return made.results


@pytest.fixture
def work(tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A `tests.resuming.Work` that runs commands below `tmp_path`."""
    from tests.resuming import Work

    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)  # it takes a second
    return Work(tmp_path)


@pytest.fixture
def torch_for_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exported file holds the torch model itself: what a task does with it is tested, not the export of the graph.

    That takes seconds; tests/serving/test_onnx.py and tests/stages/test_export.py have it.
    """
    import torch

    from domainbert.serving.onnx import graph, session

    class Session:
        def __init__(self, file: Path) -> None:
            self.model = torch.load(file, weights_only=False)

        def get_inputs(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name=name) for name in self.model.input_names]

        def get_outputs(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name=self.model.output_name)]

        def run(self, outputs: list[str], rows: dict[str, Any]) -> list[Any]:
            assert outputs == [self.model.output_name]
            with torch.inference_mode():
                return [self.model(**{name: torch.from_numpy(row) for name, row in rows.items()}).numpy()]

    monkeypatch.setattr(graph, "write_onnx", lambda path, model: torch.save(graph.PlainModel(model).eval(), path))
    monkeypatch.setattr(session, "_open_session", Session)


@pytest.fixture
def one_thread():
    """Tiny models gain nothing from threads, lose much on busy cores, and add in the same order everywhere."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
