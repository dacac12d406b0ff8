"""The page of popular packages has what the table of benchmarks/worlds and its last results say."""

from __future__ import annotations

from benchmarks.common import read_section
from benchmarks.worlds.packages import PACKAGES
from benchmarks.worlds.page import END, PAGE, START, content, recorded


def test_the_table_of_the_page_is_that_of_the_packages_and_their_results():
    assert read_section(PAGE, START, END) == content(recorded()).strip(), "run: python -m benchmarks.worlds --only-page"


def test_each_package_is_listed_once_and_says_what_to_type():
    names = [package.name for package in PACKAGES]
    assert len(set(names)) == len(names) >= 40
    assert all(":" in package.env for package in PACKAGES)
    assert set(recorded()) <= set(names)
