"""What offbeat is measured with: `python -m benchmarks.speed`, `python -m benchmarks.scores` and others."""
