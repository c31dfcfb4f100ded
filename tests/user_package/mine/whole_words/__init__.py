"""A kind of vocabulary: whole words, as they stand between spaces."""
