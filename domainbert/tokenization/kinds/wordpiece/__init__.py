"""WordPiece, the vocabulary of BERT."""
