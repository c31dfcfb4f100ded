"""HTML report of one or several runs, on a single page."""
