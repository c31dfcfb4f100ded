"""The stages of the command line, one function each."""
