"""Uploads model folders to the Hugging Face hub; `base.paths` downloads `hub:NAME`."""

from __future__ import annotations

from pathlib import Path

from domainbert.base.errors import Advice, DomainbertError
from domainbert.base.paths import check_hub_name, check_regular
from domainbert.models.card import CARD
from domainbert.models.folder import SHARD_INDEX, find_weights, open_model
from domainbert.tokenization.load import TOKENIZER_FILES

_EXPORTED = ("*.onnx", "crf.json", "biaffine.safetensors")  # further files of an `export` folder
_REASONS: dict[int, tuple[str, Advice]] = {  # by HTTP status
    401: (
        "the hub accepts no token from this machine",
        {"hint": "run hf auth login, or set HF_TOKEN to a token with write access"},
    ),
    403: ("the token may not write to this repository", {"expected": "a token with write access to it"}),
}


def push_to_hub(
    repo_id: str,
    folder: str | Path,
    *,
    card: str | Path | None = None,
    private: bool | None = None,
    commit_message: str = "Upload model",
    token: str | None = None,
) -> str:
    """Upload a model folder to the Hugging Face hub in one commit, and return the URL of its repository.

        push_to_hub("me/tagger", "runs/law/ner", private=True)

    >>> from domainbert import push_to_hub
    >>> push_to_hub("me/tagger", "runs")
    Traceback (most recent call last):
    domainbert.base.errors.DomainbertError: runs: no config.json; expected a model folder

    Uploaded are weights, `config.json`, tokenizer and model card, for an exported folder also its ONNX files; no
    checkpoints, logs, subfolders or other files.

    Args:
        repo_id: `OWNER/NAME`, or `NAME` for a repository of the token's user; created if it does not exist.
        folder: model folder; of a `finetune` folder, the best seed on validation.
        card: file to upload as model card instead of README.md in the folder, such as the card with test scores that
            `evaluate` writes.
        private: visibility of a new repository; None takes the default of the owner, usually public.
        commit_message: message of the commit.
        token: access token; None takes `HF_TOKEN`, or the token that `hf auth login` has saved.

    Raises:
        DomainbertError: the folder is no complete model folder, the card is no file, the name is not valid on the hub,
            or the hub is not reachable or rejects the upload.
    """
    from huggingface_hub import CommitOperationAdd, HfApi  # here: slow to import

    name, revision = check_hub_name(repo_id)
    if revision is not None:
        raise DomainbertError(where=repo_id, found=f"the revision {revision}", expected="a name without one")
    files = model_files(Path(folder))
    if card is not None:
        check_regular(Path(card))
        if not Path(card).is_file():
            raise DomainbertError(where="card", found=str(card), expected="a file")
        files[CARD] = Path(card)
    try:
        api = HfApi(token=token)
        operations = [CommitOperationAdd(name, path) for name, path in sorted(files.items())]
        url = api.create_repo(name, private=private, exist_ok=True)
        api.create_commit(url.repo_id, operations, commit_message=commit_message)
    except Exception as error:  # the hub's client raises dozens of unrelated types
        status: int = getattr(getattr(error, "response", None), "status_code", 0)
        reason, facts = _REASONS.get(status, (" ".join(str(error).split()), {}))
        raise DomainbertError(f"the model cannot be uploaded to the hub: {reason}", where=repo_id, **facts) from error
    return str(url)


def model_files(folder: Path) -> dict[str, Path]:
    """Return the paths of the files of a model folder by name."""
    model = open_model(folder)
    model.tokenizer()  # for its errors
    patterns = ["config.json", CARD, *TOKENIZER_FILES, *_EXPORTED]
    if model.onnx is None:
        weights = find_weights(model.path).name
        patterns.append(weights)
        if weights.endswith(SHARD_INDEX):  # of `model-00001-of-00002.safetensors`, ...
            stem, _, suffix = weights.removesuffix(SHARD_INDEX).rpartition(".")
            patterns.append(f"{stem}-*.{suffix}")
    return {path.name: path for pattern in patterns for path in model.path.glob(pattern)}
