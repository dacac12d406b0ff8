"""What offbeat is measured with: `python -m benchmarks.speed` and `python -m benchmarks.scores`."""
