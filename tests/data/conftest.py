from tests.toy_corpus import readers, toy_corpus, toy_tokenizer  # noqa: F401
