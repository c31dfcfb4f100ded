"""Labelled tasks: what they read, how they are encoded, learnt, decoded and scored."""
