"""The lessons on the page about curricula end with a result. The test of all pages trains them too briefly for that."""

from __future__ import annotations

from typing import Any

from tests.support.pages import blocks
from tests.support.runs import lines_of

from offbeat.config.config_file import load


def test_each_lesson_of_the_page_begins_when_the_one_before_is_passed(tmp_path, monkeypatch):
    (block,) = [block for block in blocks("docs/how-to/curriculum.md") if block.language == "python"]
    text = block.text
    for shown, easier in (("=100", "=1"), ("-500", "-2000"), ("steps=300_000", "steps=20_000, eval_every=0")):
        assert shown in text
        text = text.replace(shown, easier)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(text, "lessons", "exec"), names)
    run = names["run"]
    assert run.reason == "stopped by the callback Lesson: the mean return is at least -2000"
    assert load(run.path / "config.toml").env.curriculum == ("g 0:10",)
    log = (run.path / "log.txt").read_text()
    assert [f"'g 0:{old}'] to ['g 0:{new}'" in log for old, new in ((2, 6), (6, 10))] == [True, True]
    assert lines_of(run.path)[-1]["env_steps"] < 20_000
