from tests.tasks.tiny_folders import vocabularies  # noqa: F401
from tests.tiny_training import make_model, on_one_thread, pretrain, reader, tokenizer  # noqa: F401
