#!/usr/bin/env bash
# Train an agent, evaluate it, plot how it learned: `make demo`. Each time in a new run directory.
set -euo pipefail
offbeat=${OFFBEAT:-offbeat}
run=runs/demo-$(date +%Y%m%d-%H%M%S)

$offbeat train ppo CartPole-v1 --steps 200000 --seed 1 --run-dir "$run"
$offbeat eval "$run" --episodes 20
$offbeat plot "$run" --out "$run/return.png"

echo
echo "The learning curve: $run/return.png. What you could type next:"
echo
next() { printf '  # %s\n  %s %s\n' "$1" "$offbeat" "$2"; }
next "see it balance" "watch $run --video cartpole.mp4"
next "train it on" "resume $run --steps 400000"
next "something harder" "train ppo HalfCheetah-v5"
next "where the time goes" "bench ppo CartPole-v1"
next "all the rest" "--help"
