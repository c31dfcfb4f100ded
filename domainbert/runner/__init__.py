"""Running stages: their folders and manifests, alone or as a recipe, and the table of results."""
