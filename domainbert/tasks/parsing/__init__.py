"""Dependency trees over the words of sentences."""
