#!/bin/bash
# A command of domainbert by several processes, without a cluster's scheduler. On one machine, one for each GPU:
#
#     configs/cluster/torchrun.sh run law.yaml
#
# On several, the same on each of them (in a folder that all see), with one of them to meet at:
#
#     NODES=2 MEET=node1:29500 configs/cluster/torchrun.sh pretrain -c pretrain.yaml --out runs/law
#
# RESTARTS=3 starts all processes again, as often at most, when one of them or a node is lost; with NODES=1:2 they go on
# with the nodes that are left.
#
# DEVICES is the number of processes of this machine; by default its GPUs, or else its processors' cores.
#
# To stop: SIGTERM or Ctrl-C to torchrun on every machine. All processes save and end within torchrun's 30 seconds.
# torchrun itself ends with 1 whatever its processes end with: `status.json` in the stage's folder says "stopped" where
# the state is saved, and "failed" where something went wrong. SIGUSR1 is not for torchrun: it would only kill it.
exec torchrun --nnodes="${NODES:-1}" --nproc-per-node="${DEVICES:-auto}" --max-restarts="${RESTARTS:-0}" \
    --rdzv-backend=c10d --rdzv-endpoint="${MEET:-localhost:0}" --rdzv-id=domainbert \
    --no-python domainbert "$@"
