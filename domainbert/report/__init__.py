"""The report of a run or several: one page of HTML."""
