"""Package of a user: a family, a vocabulary kind, two objectives and a task, each a folder.

docs/how-to/ shows `grade`, `pre_norm` and `random_tokens`. No file of domainbert names them.
"""
