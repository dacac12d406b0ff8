"""The pages hold together: their links lead somewhere, and what is written from the code is up to date."""

from __future__ import annotations

import runpy
from dataclasses import MISSING, fields
from itertools import product

import pytest
from tests.support.pages import PAGES, ROOT, anchors, links

from offbeat.config.registry import ALGORITHMS
from offbeat.config.resolve import resolve


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_on_a_page_exist(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (PAGES[page].parent / path).resolve() if path else PAGES[page]
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_the_options_page_agrees_with_the_code():
    written = runpy.run_path(str(ROOT / "docs/generate_options.py"))["page"]()
    assert written == (ROOT / "docs/reference/options.md").read_text(), "type: python docs/generate_options.py"


def test_the_options_page_has_the_defaults_of_each_runtime():
    found: dict[str, dict[tuple[str, int], object]] = {}
    described: set[str] = set()
    for algorithm, runtime, actors in product(ALGORITHMS, ("serial", "threads", "processes"), (None, 2)):
        flags = {"runtime": runtime} | ({"actors": actors} if actors else {})
        config = resolve(algorithm, "Own-v0", flags=flags)
        for table in (config.run, config.env, config.runtime, config.algorithm_settings):
            texts = getattr(table, "default_texts", {})
            for key in fields(table):
                value = getattr(table, key.name)
                if key.name in texts and key.default is not None:
                    described.add(key.name)
                if key.default not in (MISSING, None, value) and key.name not in flags:
                    name = key.name if key.name in texts else f"{algorithm}.{key.name}"
                    found.setdefault(name, {})[runtime, actors or 1] = value
    assert found == {
        "max_lag": dict.fromkeys(product(("threads", "processes"), (1, 2)), 1),
        "max_ahead": {("serial", 2): 1, ("threads", 1): 1, ("threads", 2): 2, ("processes", 1): 1, ("processes", 2): 2},
        "ppo.unroll_length": dict.fromkeys(product(("serial", "threads", "processes"), (1, 2)), 128),
        "warmup": dict.fromkeys(product(("serial", "threads", "processes"), (1, 2)), 100 * 1000 * 8),
        "capacity": {
            (runtime, actors): 2 * (100 + actors) * 1000 * 8
            for runtime, actors in product(("serial", "threads", "processes"), (1, 2))
        },
        "split": {("threads", 1): "measured", ("processes", 1): "measured"},
    }
    own = {f"{name}.{key}" for name, entry in ALGORITHMS.items() for key in entry.config_class().runtime_defaults}
    assert described | own == found.keys()


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = [(PAGES[page].parent / link.partition("#")[0]).resolve() for link in links(page)]
        inside = {str(path.relative_to(ROOT)) for path in targets if path.is_relative_to(ROOT)}
        waiting += (inside & PAGES.keys()) - reached
    assert reached == PAGES.keys()


def test_the_readme_has_at_most_150_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
