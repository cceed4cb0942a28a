#!/usr/bin/env bash
# Several trainings with the recipe laptop at once on a machine of many cores, two cores each; finished ones are kept, so
# the same line goes on after an interruption.     RUNS=runs/laptop lab/scripts/many_cores.sh FIRST_CORE SYSTEM...
# A word of SYSTEM may carry a seed and settings: combined:1, gray_scott:0:dynamics.unroll=1
set -u
cd "$(dirname "$0")/../.."
runs=${RUNS:-runs/laptop} core=$1
shift
mkdir -p "$runs"
for word in "$@"; do
  IFS=: read -r system seed settings <<<"$word:::"
  name=$system-s${seed:-0}${settings:+-${settings//[^A-Za-z0-9]/_}}
  name=${name%_}
  cores=$core,$((core + 1)) core=$((core + 2))
  (
    export OMP_NUM_THREADS=2 PYTHONPATH=src CUDA_VISIBLE_DEVICES= PYTHONUNBUFFERED=1
    run() { taskset -c "$cores" "${PYTHON:-python3}" -m pdejepa "$@"; }
    # shellcheck disable=SC2086  # settings are several words
    run train "$system" --recipe laptop --seed "${seed:-0}" --out "$runs/$name" ${settings//:/ } >>"$runs/$name.log" 2>&1 \
      && run evaluate "$runs/$name" --device cpu --out "$runs/$name-polish.json" >>"$runs/$name.log" 2>&1 \
      && run evaluate "$runs/$name/model-four-stages" --device cpu --out "$runs/$name-four.json" >>"$runs/$name.log" 2>&1
  ) </dev/null &
done
wait
