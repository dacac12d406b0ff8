from __future__ import annotations

import re
from pathlib import Path

from offbeat.metrics.names import METRICS

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_the_metrics_page_documents_exactly_the_existing_metrics():
    documented = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(documented) == sorted(METRICS)
