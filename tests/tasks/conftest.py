from tests.tiny_training import make_model, on_one_thread, pretrain, reader, tokenizer  # noqa: F401
