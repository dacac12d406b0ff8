"""On a terminal, the lines of a text end between words."""

import io
from functools import partial
from types import SimpleNamespace

import pytest
from tests.support.terminals import shown_on_terminal

from offbeat.core.printing import can_redraw, print_text, wrapped

TEXT = "CartPole-v1, greedy, 20 episodes: return 195.7 +- 6.80"


def test_a_line_longer_than_the_terminal_continues_on_an_indented_line():
    shown = shown_on_terminal(partial(print_text, TEXT), 40)
    assert shown == "CartPole-v1, greedy, 20 episodes: return\n  195.7 +- 6.80\n"


def test_each_line_of_a_text_is_wrapped_by_itself():
    shown = shown_on_terminal(partial(print_text, f"short\n  {TEXT}"), 40)
    assert shown == "short\n  CartPole-v1, greedy, 20 episodes:\n    return 195.7 +- 6.80\n"


def test_a_terminal_that_does_not_tell_its_width_has_80_columns():
    shown = shown_on_terminal(partial(print_text, " ".join(40 * ["ab"])), 0)
    assert [len(line) for line in shown.splitlines()] == [80, 40]


def test_other_streams_get_a_text_as_it_is():
    stream = io.StringIO()
    print_text(4 * TEXT, stream)
    assert stream.getvalue() == 4 * TEXT + "\n"


def test_a_stream_that_is_closed_or_cannot_say_what_it_is_cannot_be_redrawn():
    stream = io.StringIO()
    stream.close()
    assert not can_redraw(stream)
    assert not can_redraw(SimpleNamespace(write=print, flush=print))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a long/path/that-does-not-fit", "a\n  long/path/that-does-not-fit"),
        ("run `offbeat eval runs/a` next", "run\n  `offbeat eval runs/a`\n  next"),
        ("see (`offbeat eval runs/a`), and more", "see\n  (`offbeat eval runs/a`),\n  and more"),
        ("it`s wrong, run `offbeat eval runs/a`", "it`s wrong, run\n  `offbeat eval runs/a`"),
        ("return 10.0  eval 2.0  SPS 3", "return 10.0  eval\n  2.0  SPS 3"),
        ("中文学习 中文学习 中文", "中文学习 中文学习\n  中文"),
    ],
)
def test_words_and_commands_are_not_broken(line, expected):
    assert wrapped(line, 18, indent=2) == expected
