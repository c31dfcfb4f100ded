from tests.tiny_training import make_model, on_one_thread, pretrain, reader, tokenizer  # noqa: F401
from tests.toy_corpus import readers, toy_corpus, toy_tokenizer  # noqa: F401
