"""Upload a model folder to the Hugging Face hub: the command `domainbert push`."""

from __future__ import annotations

from domainbert.base.errors import DomainbertError
from domainbert.settings.command_line import ParsedArguments

FLAGS = {"card": "one", "message": "one", "private": "none", "allow_import": "one"}
HELP = """\
usage: domainbert push FOLDER REPOSITORY [--card FILE] [--private] [--message TEXT]

Upload the model in FOLDER to REPOSITORY on the Hugging Face hub in one commit, and print its address: weights,
config.json, tokenizer and model card; for an exported folder also its ONNX files. The token comes from the environment
variable HF_TOKEN, or from `hf auth login`.

  FOLDER              model folder; of a finetune folder, the best seed on validation
  REPOSITORY          OWNER/NAME on the hub; created if it does not exist
  --card FILE         upload FILE as model card, such as cards/<system>/README.md of evaluate, with its test scores
  --private           create a private repository
  --message TEXT      message of the commit
  --allow-import PKG  allow encoder families and tasks from your own packages (PKG,PKG)
"""


def perform(typed: ParsedArguments) -> int:
    """Upload the folder, print the URL of the repository, and return exit code 0."""
    if typed.options or typed.files:
        option = f"--{typed.options[0][0]}" if typed.options else "-c"
        raise DomainbertError("no such option of push", where=option, expected="--card, --private or --message")
    if len(typed.words) != 2:
        raise DomainbertError("expected a folder and a repository: domainbert push FOLDER OWNER/NAME", where="push")
    from domainbert.models.hub import push_to_hub  # here: slow to import

    folder, repo_id = typed.words
    private = True if "private" in typed.flags else None
    message = typed.flags.get("message") or "Upload model"
    print(push_to_hub(repo_id, folder, card=typed.flags.get("card"), private=private, commit_message=message))
    return 0
