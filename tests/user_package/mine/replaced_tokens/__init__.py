"""An objective of a user package: replaced tokens are detected, small and without the refinements of ELECTRA."""
