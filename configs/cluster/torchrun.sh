#!/bin/bash
# Runs a domainbert command in several processes, without a cluster scheduler. On one machine, one process per GPU:
#
#     configs/cluster/torchrun.sh run law.yaml
#
# On several machines, the same command on each (in a shared folder), with one of them as rendezvous:
#
#     NODES=2 MEET=node1:29500 configs/cluster/torchrun.sh pretrain -c pretrain.yaml --out runs/law/pretrain
#
# RESTARTS=3 restarts all processes, at most three times, if a process or node is lost; with NODES=1:2 they continue on the
# remaining nodes.
#
# DEVICES is the number of processes of this machine; default: its GPUs, or its CPU cores.
#
# To stop: SIGTERM or Ctrl-C to torchrun on every machine. All processes save and end within torchrun's 30 seconds.
# torchrun exits with 1 for any exit code of its processes: `run.json` in the stage folder says "stopped" if the state
# is saved, and "failed" after an error. A lost process or node is an error as well: `reason` then says that the same
# command resumes from the last checkpoint. Do not send SIGUSR1, which kills torchrun.
exec torchrun --nnodes="${NODES:-1}" --nproc-per-node="${DEVICES:-auto}" --max-restarts="${RESTARTS:-0}" \
    --rdzv-backend=c10d --rdzv-endpoint="${MEET:-localhost:0}" --rdzv-id=domainbert \
    --no-python domainbert "$@"
