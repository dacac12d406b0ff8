from __future__ import annotations

from offbeat.plots.figures import literal, wrapped


def test_a_long_name_with_dollar_signs_is_wrapped_and_a_formula_is_not():
    name, formula = literal("cost in $ " * 10), "return $a + b$ " * 10
    assert "\n" in wrapped(name, 2)
    assert wrapped(formula, 2) == formula


def test_a_name_with_control_characters_is_drawn_with_escapes():
    assert literal("Cart\x1b[2J\nPole") == r"Cart\x1b[2J\nPole"
