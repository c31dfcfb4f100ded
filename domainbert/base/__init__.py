"""Used by everything: errors, files, paths, hashes, progress, random numbers."""
