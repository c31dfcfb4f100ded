"""Stages of the command line, each a function in a module."""
