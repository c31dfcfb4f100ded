#!/usr/bin/env bash
# Benchmarks for one GPU, the most important first: some eleven minutes in all on an H100. Each part has a time limit, a log
# and a JSON, which holds the rounds done where a part is cut off; a part that fails does not stop the others.
#
#   bash benchmarks/gpu.sh --download wheels     # where there is a network: packages that a machine with torch may lack
#   bash benchmarks/gpu.sh --wheels wheels       # on the machine with the GPU, which needs no network
#   bash benchmarks/gpu.sh --dry-run             # every part in small, on the CPU
#
# Needed there: Python >= 3.10, torch >= 2.10 with CUDA, lightning, transformers, tokenizers, accelerate, pyarrow, pandas
# and tensorboard; domainbert is read from this folder. To try it without a GPU, make a virtual environment of these
# packages and the wheels, and start --dry-run with its interpreter as PYTHON.
# --out FOLDER takes the JSONs (default: benchmarks/results, as NAME-GPU.json); --parts "gpu_equal pretrain-base-512"
# runs some alone; --defaults measures the peers' defaults, too. DOMAINBERT_DATA, if set, has the corpus, and the sentences
# of fine-tuning and prediction; DOMAINBERT_MODEL is the model that these start from, by default BERT-base with random weights.
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
PYTHON=${PYTHON:-python3}
cache=${BENCHMARKS_CACHE:-runs/benchmarks} wheels= out=benchmarks/results parts= dry= defaults=--without-defaults
while [ $# -gt 0 ]; do
  case $1 in
    --download) exec "$PYTHON" -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$2" \
      datasets dill multiprocess xxhash pydantic==2.14.3 pydantic_core==2.50.4 annotated_types typing_inspection \
      optuna alembic colorlog mako sqlalchemy ;;
    --wheels) wheels=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --parts) parts=" $2 "; shift 2 ;;
    --defaults) defaults=; shift ;;
    --dry-run) dry=yes; shift ;;
    *) echo "$1: expected --download FOLDER, --wheels FOLDER, --out FOLDER, --parts \"NAME ...\", --defaults or --dry-run" >&2; exit 2 ;;
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
mkdir -p "$out" "$cache/logs"

failed=0 started=$SECONDS
part() {  # part NAME SECONDS PROGRAM ARGUMENTS...
  local name=$1 seconds=$2 log="$cache/logs/$1.log"; shift 2
  [ -n "$parts" ] && [[ "$parts" != *" $name "* ]] && return
  [ -n "$dry" ] && seconds=1200
  local begun=$SECONDS
  if timeout "$seconds" "$PYTHON" "$@" --out "$out/$name-$gpu.json" > "$log" 2>&1; then
    echo "$name: done in $((SECONDS - begun)) s"; grep -E '^[^ ].*[0-9]x  \(|utilisation|all .* agree|ms a step' "$log"
  else
    echo "$name: failed after $((SECONDS - begun)) s; the end of $log:"; tail -n 12 "$log"; failed=$((failed + 1))
    tail -n 30 "$cache"/logs/[0-9]*.log
  fi
}
pretraining() {  # pretraining NAME SECONDS PROGRAM ENCODER LENGTH ARGUMENTS...: 32,768 tokens a step
  local name=$1 seconds=$2 program=$3 encoder=$4 length=$5; shift 5
  if [ -n "$dry" ]; then
    case $encoder in base | medium | large) encoder=tiny ;; *) encoder=${encoder%-*}-tiny ;; esac
    part "$name" "$seconds" "$program" --encoder "$encoder" --length 64 --tokens 512 "$@" --steps 1
  else
    part "$name" "$seconds" "$program" --encoder "$encoder" --length "$length" --tokens 32768 "$@" --steps 12
  fi
}
model() {  # the model folder that fine-tuning starts from
  local folder=$cache/random-${dry:+tiny-}base
  [ -n "${DOMAINBERT_MODEL:-}" ] && { echo "$DOMAINBERT_MODEL"; return; }
  [ -f "$folder/model.safetensors" ] || "$PYTHON" benchmarks/random_model.py "$folder" --encoder "$([ -n "$dry" ] && echo tiny || echo base)" \
    > "$cache/logs/random_model.log" 2>&1
  echo "$folder"
}

part gpu_equal 100 benchmarks/gpu_equal.py
pretraining pretrain-base-512 120 benchmarks/pretrain.py base 512 --rounds 3 $defaults
start=$(model)
part finetune_ner 180 benchmarks/finetune_ner.py --model "$start" --epochs "$([ -n "$dry" ] && echo 1 || echo 3)" $defaults
part predict 180 benchmarks/predict.py --start "$start" --texts "$([ -n "$dry" ] && echo 16 || echo 1700)" --rounds 5
pretraining profile-base-512 70 benchmarks/profile_pretrain.py base 512
pretraining pretrain-base-128 100 benchmarks/pretrain.py base 128 --rounds 3 $defaults
pretraining pretrain-modernbert-base-512 150 benchmarks/pretrain.py modernbert-base 512 --rounds 3 $defaults
pretraining pretrain-large-512 150 benchmarks/pretrain.py large 512 --rounds 3 $defaults
pretraining pretrain-medium-128 90 benchmarks/pretrain.py medium 128 --rounds 3 $defaults
echo "all parts: $((SECONDS - started)) s"
exit $((failed > 0))
