#!/usr/bin/env bash
# What only a GPU can tell, most important first. Each part has a time limit (10 minutes for all but the last three), a
# log and a JSON; one that fails does not stop the others.
#
#   bash benchmarks/gpu.sh --download wheels     # where there is a network: what a machine with torch may lack (8 MB)
#   bash benchmarks/gpu.sh --wheels wheels       # on the machine with the GPU, which needs no network
#   bash benchmarks/gpu.sh --dry-run             # every part in small, on the CPU
#
# Needed there: Python >= 3.10, torch >= 2.10 with CUDA, lightning, transformers, tokenizers, accelerate, pyarrow, pandas
# and tensorboard. --out FOLDER takes the JSONs (default: benchmarks/results, as NAME-GPU.json); --parts "equal base-512"
# runs some alone. DOMAINBERT_DATA and DOMAINBERT_MODEL (a model folder), if set, are for fine-tuning and prediction.
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
PYTHON=${PYTHON:-python3}
wheels= out=benchmarks/results parts= dry=
while [ $# -gt 0 ]; do
  case $1 in
    --download) exec "$PYTHON" -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$2" \
      datasets dill multiprocess xxhash jsonargparse docstring_parser typeshed_client importlib_resources \
      optuna alembic colorlog mako sqlalchemy ;;
    --wheels) wheels=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --parts) parts=" $2 "; shift 2 ;;
    --dry-run) dry=yes; shift ;;
    *) echo "$1: expected --download FOLDER, --wheels FOLDER, --out FOLDER, --parts \"NAME ...\" or --dry-run" >&2; exit 2 ;;
  esac
done

if [ -n "$wheels" ]; then
  site=$(mktemp -d)
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl || exit
  export PYTHONPATH="$PYTHONPATH:$site"
fi
[ -n "$dry" ] && export CUDA_VISIBLE_DEVICES=
gpu=$("$PYTHON" -c 'import torch; print(torch.cuda.get_device_name().split()[1].lower() if torch.cuda.is_available() else "cpu")') || exit
[ -z "$dry" ] && [ "$gpu" = cpu ] && { echo "no GPU here; --dry-run does without" >&2; exit 1; }
mkdir -p "$out" runs/benchmarks/logs

failed=0
part() {  # part NAME SECONDS PROGRAM ARGUMENTS...
  local name=$1 seconds=$2 log="runs/benchmarks/logs/$1.log"; shift 2
  [ -n "$parts" ] && [[ "$parts" != *" $name "* ]] && return
  [ -n "$dry" ] && seconds=1200
  local begun=$SECONDS
  if timeout "$seconds" "$PYTHON" "$@" --out "$out/$name-$gpu.json" > "$log" 2>&1; then
    echo "$name: done in $((SECONDS - begun)) s"; grep -E '^[^ ].*[0-9]x  \(|utilisation|all .* agree' "$log"
  else
    echo "$name: failed after $((SECONDS - begun)) s; the end of $log:"; tail -n 12 "$log"; failed=$((failed + 1))
  fi
}
pretraining() {  # pretraining NAME SECONDS PROGRAM ENCODER LENGTH ARGUMENTS...: 65,536 tokens a step
  local name=$1 seconds=$2 program=$3 encoder=$4 length=$5; shift 5
  if [ -n "$dry" ]; then
    case $encoder in base | medium) encoder=tiny ;; *) encoder=${encoder%-*}-tiny ;; esac
    part "$name" "$seconds" "$program" --encoder "$encoder" --length 64 --tokens 512 "$@" --steps 1
  else
    part "$name" "$seconds" "$program" --encoder "$encoder" --length "$length" --tokens 65536 "$@" --steps 20
  fi
}

part gpu_equal 100 benchmarks/gpu_equal.py
pretraining pretrain-base-512 100 benchmarks/pretrain.py base 512 --rounds 3
pretraining pretrain-medium-128 70 benchmarks/pretrain.py medium 128 --rounds 3
pretraining profile-base-512 60 benchmarks/profile_pretrain.py base 512
pretraining pretrain-deberta-v3-small-512 70 benchmarks/pretrain.py deberta-v3-small 512 --rounds 3
pretraining pretrain-modernbert-small-512 70 benchmarks/pretrain.py modernbert-small 512 --rounds 3
if [ -n "${DOMAINBERT_DATA:-}" ]; then
  model=${DOMAINBERT_MODEL:+--model $DOMAINBERT_MODEL}
  part finetune_ner-econ 80 benchmarks/finetune_ner.py --epochs "$([ -n "$dry" ] && echo 1 || echo 3)" $model
  part predict 60 benchmarks/predict.py $model
else
  echo "finetune_ner-econ, predict: left out, as DOMAINBERT_DATA is not set"
fi
pretraining pretrain-base-128 80 benchmarks/pretrain.py base 128 --rounds 3
pretraining pretrain-medium-512 80 benchmarks/pretrain.py medium 512 --rounds 3
pretraining pretrain-base-1024 90 benchmarks/pretrain.py base 1024 --rounds 3
exit $((failed > 0))
