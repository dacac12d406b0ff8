"""Numbers and lists as short text, for the dashboard, the lines and the plots."""

from __future__ import annotations

import math
from collections.abc import Sequence


def compact(value: float | None, digits: int = 3) -> str:
    """Return a number with significant digits and a unit: 950, 12.3k, 1.5M; '-' if it is not known."""
    if value is None or not math.isfinite(value):
        return "-"
    rounded = float(f"{value:.{digits}g}") + 0.0  # round first: 999,999 becomes 1M and not 1000k; + 0: no minus zero
    if abs(rounded) >= 1e15:
        return f"{rounded:.{digits}g}"
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rounded) >= scale:
            return f"{rounded / scale:.{digits}g}{unit}"
    return f"{rounded:.{digits}g}"


def rounded(value: float | None) -> str:
    """Return a number with at most two decimals, fewer for larger numbers; '-' if it is not known."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{round(value, 2) + 0.0:.2f}"  # + 0: no minus zero


def precise(value: float, scale: float = 0.0) -> str:
    """Return a number with at least three significant digits and at least one decimal: 500.0, 4.41, 0.0123.

    It is 0.0 if it is only a rounding error of float32 numbers up to `scale`, as the deviation of equal returns.
    """
    if abs(value) < 1e-7 * scale:
        return "0.0"
    rounded = float(f"{value:.3g}")  # round first, so that 9.996 has as many decimals as 10
    if not math.isfinite(value) or rounded == 0:
        return f"{value:.1f}"
    return f"{value:.{max(1, 2 - math.floor(math.log10(abs(rounded))))}f}"


def in_repr(value: float | None) -> str:
    """Return a number as objects show it: with six significant digits, or None."""
    return "None" if value is None else f"{value:.6g}"


def percentage(value: float | None) -> str:
    """Return a fraction as a percentage: 71%; '-' if it is not known."""
    return "-" if value is None else f"{value:.0%}"


def done(fraction: float) -> str:
    """Return how much is done as a percentage: at most 99% before the end."""
    return f"{1 if fraction >= 1 else min(fraction, 0.99):.0%}"


def counted(number: int, noun: str) -> str:
    """Return a number with a noun: 1 actor, 2 actors."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_few(texts: Sequence[str], most: int) -> list[str]:
    """Return the first texts, and if there are more than `most`, how many more as the last one."""
    more = len(texts) - most
    return [*texts[:most], *([f"{more} more"] if more > 0 else [])]


def duration(seconds: float | None) -> str:
    """Return days, hours, minutes and seconds: 0:42, 12:05, 3:07:00, 2d 03:07:00; '-' if they are not known."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
