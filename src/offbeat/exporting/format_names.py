"""The names of the file formats. They are known without torch."""

from __future__ import annotations

from typing import Literal

FormatName = Literal["onnx", "torchscript"]
SUFFIXES = {"onnx": ".onnx", "torchscript": ".pt"}
"""Suffix of the default file, by format. A file of another format cannot have it."""
