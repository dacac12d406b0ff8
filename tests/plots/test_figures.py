from __future__ import annotations

import warnings
from typing import Any

from matplotlib.figure import Figure

from offbeat.plots.figures import literal, wrapped, write_figure


def test_a_long_name_with_dollar_signs_is_wrapped_and_a_formula_is_not():
    name, formula = literal("cost in $ " * 10), "return $a + b$ " * 10
    assert "\n" in wrapped(name, 2)
    assert wrapped(formula, 2) == formula


def test_a_name_with_control_characters_is_drawn_with_escapes():
    assert literal("Cart\x1b[2J\nPole") == r"Cart\x1b[2J\nPole"


def test_characters_that_the_font_lacks_are_named_once_and_other_warnings_stay(tmp_path):
    class Warns(Figure):
        def savefig(self, *arguments: Any, **named: Any) -> None:
            super().savefig(*arguments, **named)
            warnings.warn("something else", stacklevel=1)

    figure, said = Warns(), list[str]()
    figure.subplots().set_title("学习 学")
    figure.suptitle("学")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write_figure(figure, tmp_path / "picture.png", said.append)
    assert [str(each.message) for each in caught] == ["something else"]
    assert [text.partition(",")[0] for text in said] == ["the font of the picture lacks 学 习"]
