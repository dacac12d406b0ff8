#!/usr/bin/env bash
# Train an agent, evaluate it, plot how it learned: `make demo`. Each time in a new run directory.
set -euo pipefail
offbeat=${OFFBEAT:-offbeat}
run=runs/demo-$(date +%Y%m%d-%H%M%S)

$offbeat train ppo CartPole-v1 --steps 200000 --seed 1 --run-dir "$run"
$offbeat eval "$run" --episodes 20
$offbeat plot "$run" --out "$run/return.png"

echo
echo "The learning curve: $run/return.png. Next, you can type:"
echo
next() { printf '  # %s\n  %s %s\n' "$1" "$offbeat" "$2"; }
next "watch an episode" "watch $run --video cartpole.mp4"
next "train it further" "resume $run --steps 400000"
next "train on a harder env" "train ppo HalfCheetah-v5"
next "measure what takes the time" "bench ppo CartPole-v1"
next "list all commands" "--help"
