from __future__ import annotations

import re
from pathlib import Path

from offbeat.metrics.recorder import METRICS

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_the_page_of_metrics_has_a_row_for_each_metric_and_for_no_other():
    documented = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(documented) == sorted(METRICS)
