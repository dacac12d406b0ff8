"""Tries packages of envs, each in an environment of its own: `python -m benchmarks.worlds`, or `make worlds`."""
