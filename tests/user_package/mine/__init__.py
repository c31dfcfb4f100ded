"""A package of a user: a family, a kind of vocabulary, an objective and a task, each a folder.

`--allow-import mine` makes them known. No file of domainbert names them.
"""
