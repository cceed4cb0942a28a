#!/usr/bin/env bash
# The recipe fast re-cut as the laptop's, one training after the other on one GPU; what has a record is kept.
#     RUNS=runs/levers lab/scripts/fast_levers.sh vorticity combined gray_scott
set -u
cd "$(dirname "$0")/../.."
runs=${RUNS:-runs/levers}
mkdir -p "$runs"
export PYTHONPATH=src PYTHONUNBUFFERED=1
common=(model.field.integrator=euler dynamics.unroll=2 dynamics.training.average=0.08 decode.training.average=0.04
  polish.training.average=0.03 polish.first=0 polish.anchor_weight=0.1 pretrain.ema.kind=budget pretrain.ema.memory=4)
seconds() { # of pretrain, align, dynamics, decode, polish
  local names=(pretrain align dynamics decode polish) i
  for i in 0 1 2 3 4; do shift_words+=("${names[$i]}.training.budget.seconds=$1") && shift; done
}
for system in "$@"; do
  shift_words=()
  case $system in
    vorticity)
      seconds 30 6 110 60 154
      own=(dynamics.training.batch=64 polish.recompute=false counts.train=4000 model.decoder.style=patches
        'model.decoder.widths=[32, 32]' decode.share=0.25) ;;
    gray_scott) seconds 8 2 55 35 80; own=(dynamics.training.batch=128 polish.training.batch=64) ;;
    *) seconds 8 2 55 25 90; own=(dynamics.training.batch=128 polish.training.batch=64 amplitude=unit) ;;
  esac
  [ -e "$runs/$system-polish.json" ] && continue
  python3 -m pdejepa train "$system" --recipe fast --device cuda --out "$runs/$system" "${common[@]}" "${shift_words[@]}" "${own[@]}" \
    && python3 -m pdejepa evaluate "$runs/$system" --device cuda --splits valid,test,ood --out "$runs/$system-polish.json" \
    && python3 -m pdejepa evaluate "$runs/$system/model-four-stages" --device cuda --splits test,ood --out "$runs/$system-four.json"
done >>"$runs/log.txt" 2>&1
