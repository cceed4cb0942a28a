#!/usr/bin/env bash
# One training with the recipe laptop on a GPU, then its errors; what has a record is kept.
#     RUNS=runs/gpu lab/scripts/laptop_on_gpu.sh OUT SYSTEM SPLITS [SETTING...]
set -u
cd "$(dirname "$0")/../.."
runs=${RUNS:-runs/gpu} out=$1 system=$2 splits=$3
shift 3
mkdir -p "$runs"
export PYTHONPATH=src PYTHONUNBUFFERED=1
[ -e "$runs/$out-polish.json" ] && exit 0
run() { "${PYTHON:-python3}" -m pdejepa "$@" >>"$runs/$out.log" 2>&1 </dev/null; }
run train "$system" --recipe laptop --device cuda --out "$runs/$out" "$@" \
  && run evaluate "$runs/$out" --device cuda --splits "$splits" --out "$runs/$out-polish.json" \
  && run evaluate "$runs/$out/model-four-stages" --device cuda --splits test,ood --out "$runs/$out-four.json"
