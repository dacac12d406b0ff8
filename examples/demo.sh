#!/usr/bin/env bash
# Train an agent, evaluate it, plot how it learned: `make demo`. Each time in a new run directory.
set -euo pipefail
offbeat=${OFFBEAT:-offbeat}
run=runs/demo-$(date +%Y%m%d-%H%M%S)

$offbeat train ppo CartPole-v1 --steps 200000 --seed 1 --run-dir "$run"
$offbeat eval "$run" --episodes 20
$offbeat plot "$run" --out "$run/return.png"

cat <<NEXT

The learning curve: $run/return.png. What you could type next:

  $offbeat watch $run --video cartpole.mp4      see it balance
  $offbeat resume $run --steps 400000           train it on
  $offbeat train ppo HalfCheetah-v5             something harder
  $offbeat bench ppo CartPole-v1                where the time goes
  $offbeat --help                               all the rest
NEXT
