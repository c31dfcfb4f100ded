"""Prepares a corpus in shards with datatrove, on this machine, a SLURM cluster or Ray: then `merge` binds them.

    pip install 'domainbert[datatrove]'
    python configs/cluster/prepare.py prepare.yaml runs/law/shards --tasks 64
    python configs/cluster/prepare.py prepare.yaml runs/law/shards --tasks 64 --executor slurm --partition cpu
    domainbert merge --prepared "[$(ls -dm runs/law/shards/[0-9]*)]" --out runs/law/prepare

The same command again runs the tasks that failed or met their time limit; never with another number of tasks. The parts
are those that one `prepare` without shards writes. What datatrove notes of the tasks stands in `runs/law/shards/logs`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datatrove.data import DocumentsPipeline
from datatrove.pipeline.base import PipelineStep


class Shard(PipelineStep):
    """Tokenizes and packs the files of a rank with `prepare`.

    Args:
        config: settings of `prepare`, with `row_lengths`.
        out: folder of the shards.
        num_workers: processes of a rank that tokenize.
    """

    type, name = "domainbert", "prepare"

    def __init__(self, config: Path, out: Path, num_workers: int) -> None:
        super().__init__()
        self.config, self.out, self.num_workers = config, out, num_workers

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Prepare the shard of a rank; an error fails the task."""
        shard = ["--corpus.shard", f"{rank}/{world_size}", "--out", str(self.out / str(rank)), "--resume", "auto"]
        command = ["prepare", "-c", str(self.config), "--num_workers", str(self.num_workers), *shard]
        subprocess.run([sys.executable, "-m", "domainbert", *command], check=True)
        return data


def executor(options: argparse.Namespace) -> Any:
    """The executor of all tasks."""
    step = Shard(options.config.resolve(), options.out.resolve(), options.num_workers)
    how = {"pipeline": [step], "tasks": options.tasks, "logging_dir": str(options.out.resolve() / "logs")}
    if options.executor == "local":
        from datatrove.executor import LocalPipelineExecutor

        return LocalPipelineExecutor(**how, workers=min(options.workers, options.tasks))
    if options.executor == "slurm":
        from datatrove.executor import SlurmPipelineExecutor

        cluster = {"partition": options.partition, "time": options.time, "mem_per_cpu_gb": options.memory}
        cpus = max(options.num_workers, 1)
        return SlurmPipelineExecutor(
            **how, **cluster, cpus_per_task=cpus, job_name="domainbert-prepare", workers=options.workers
        )
    from datatrove.executor import RayPipelineExecutor

    return RayPipelineExecutor(**how, workers=options.workers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tasks, or submit them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="settings of prepare, with row_lengths")
    parser.add_argument("out", type=Path, help="folder of the shards, which all tasks see")
    parser.add_argument("--tasks", type=int, default=8, help="shards, at most one a file")
    parser.add_argument("--workers", type=int, default=2, help="tasks at a time")
    parser.add_argument("--num_workers", type=int, default=4, help="processes of a task")
    parser.add_argument("--executor", choices=("local", "slurm", "ray"), default="local")
    parser.add_argument("--partition", default="cpu", help="of SLURM")
    parser.add_argument("--time", default="04:00:00", help="of a SLURM task")
    parser.add_argument("--memory", type=int, default=1, help="gigabytes of each processor of a SLURM task")
    executor(parser.parse_args(arguments)).run()


if __name__ == "__main__":
    main()
