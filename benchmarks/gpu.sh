#!/usr/bin/env bash
# Runs everything of offbeat that needs a GPU, each part within its own time limit; a part that fails does not stop the
# others. Each part takes at most ten minutes, all of them together less than 75; we expect half an hour.
#
#   benchmarks/gpu.sh                        all parts
#   benchmarks/gpu.sh tests pong             some of them
#   benchmarks/gpu.sh --list                 the parts and their time limits
#   benchmarks/gpu.sh --smoke --out FOLDER   all parts on the CPU, in seconds each: shows that the script works
#
# Environment variables:
#   PYTHON   Python with torch and the packages of `pip install ".[atari,mujoco,export,dev]"`; default: .venv/bin/python
#            if it exists, else python3
#   WHEELS   a folder of wheels to install first, for a machine without a network
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; fi
fi
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
if [ -n "${WHEELS:-}" ]; then
  site=$(mktemp -d)
  "$PYTHON" -m pip install --quiet --no-index --no-deps --target "$site" "$WHEELS"/*.whl
  export PYTHONPATH="$PYTHONPATH:$site"
fi
exec "$PYTHON" -m benchmarks.gpu "$@"
