"""A pretraining objective: detect tokens that were replaced by random tokens."""
