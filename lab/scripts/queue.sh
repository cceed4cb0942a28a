#!/usr/bin/env bash
# Train the listed trials one after the other, on one thread of one core; finished ones are skipped, so the same line
# goes on after an interruption.      CORE=1 PYTHON=python RUNS=runs/laptop lab/scripts/queue.sh [LIST]
set -u
cd "$(dirname "$0")/../.."
list=${1:-lab/data/laptop/queue.txt} runs=${RUNS:-runs/laptop}
export OMP_NUM_THREADS=1 PYTHONPATH=src TORCHINDUCTOR_COMPILE_THREADS=1
mkdir -p "$runs" lab/data/laptop
while read -r name options <&3; do
  case $name in '' | '#'*) continue ;; esac
  kept=lab/data/laptop/$name.json
  if [ ! -e "$runs/$name/trial.json" ]; then
    mkdir -p "$runs/$name"
    # shellcheck disable=SC2086  # options are several words
    nice -n 10 taskset -c "${CORE:-1}" "${PYTHON:-python}" lab/scripts/laptop_trial.py "$name" --runs "$runs" $options \
      >>"$runs/$name/log.txt" 2>&1 </dev/null || { echo "$name: failed, see $runs/$name/log.txt"; continue; }
  fi
  cmp -s "$runs/$name/trial.json" "$kept" || cp "$runs/$name/trial.json" "$kept"
  echo "$name: finished"
done 3<"$list"
