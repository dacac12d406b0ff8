"""The kernels that gradients are computed with, as parameters of tests."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

WITH_NUMBA = pytest.mark.skipif(not find_spec("numba"), reason="needs the extra compiled")
KERNELS = pytest.mark.parametrize("kernels", ["numpy", pytest.param("numba", marks=WITH_NUMBA)])
