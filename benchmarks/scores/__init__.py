"""Scores of the presets beside the best published figures: `python -m benchmarks.scores`."""
