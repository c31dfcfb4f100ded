"""`domainbert` with the stage `learn` of `fake_stages.py`, which needs no torch, here and in the trials it starts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from domainbert.cli import main
from domainbert.runner.stage_table import STAGES
from domainbert.tuning import trial_process

STAGES["learn"] = "fake_stages:learn"
trial_process.COMMAND = (sys.executable, str(Path(__file__)))

if __name__ == "__main__":
    sys.exit(main())
