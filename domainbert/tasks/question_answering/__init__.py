"""The answer to a question, as a span of its context."""
