"""What needs a GPU: tests and measurements in parts of minutes. Begin with `parts.py`; `benchmarks/gpu.sh` runs it."""
