"""What must be closed is closed, also if closing something else fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from offbeat.core.closing import close_all, close_all_or_warn


class Door:
    """Raises in `close` if it is stuck."""

    def __init__(self, *, is_stuck: bool) -> None:
        self.is_stuck, self.is_closed = is_stuck, False

    def close(self) -> None:
        self.is_closed = True
        if self.is_stuck:
            raise OSError("it is stuck")


def close_as_error(doors: list[Door]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close_all_or_warn(doors, "doors")


@pytest.mark.parametrize("close", [close_all, close_as_error])
@pytest.mark.parametrize("stuck", [0, 1, 2])
def test_all_objects_are_closed_if_closing_one_of_them_raises_an_exception(
    close: Callable[[list[Door]], None], stuck: int
):
    doors = [Door(is_stuck=number == stuck) for number in range(3)]
    with pytest.raises(Exception, match="it is stuck"):
        close(doors)
    assert all(door.is_closed for door in doors)


def test_an_object_that_is_not_needed_and_cannot_be_closed_is_a_warning_with_its_name():
    doors = [Door(is_stuck=True), Door(is_stuck=False)]
    with pytest.warns(UserWarning, match=r"^doors: close\(\) raised OSError: it is stuck$"):
        close_all_or_warn(doors, "doors")
    assert all(door.is_closed for door in doors)
