"""What must be closed is closed, also if closing something else fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from offbeat.core.closing import close_all, close_all_or_warn, closed_on_error


class Door:
    """Raises in `close` if it is stuck."""

    def __init__(self, *, is_stuck: bool, error: type[BaseException] = OSError) -> None:
        self.is_stuck, self.is_closed, self.error = is_stuck, False, error

    def close(self) -> None:
        self.is_closed = True
        if self.is_stuck:
            raise self.error("it is stuck")


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


@pytest.mark.parametrize("error", [OSError, SystemExit])
def test_an_object_that_is_not_needed_and_cannot_be_closed_is_a_warning_with_its_name(error: type[BaseException]):
    doors = [Door(is_stuck=True, error=error), Door(is_stuck=False)]
    with pytest.warns(UserWarning, match=rf"^doors: close\(\) raised {error.__name__}: it is stuck$"):
        close_all_or_warn(doors, "doors")
    assert all(door.is_closed for door in doors)


@pytest.mark.parametrize("error", [OSError, SystemExit])
def test_an_error_is_raised_also_if_what_was_made_before_cannot_be_closed(error: type[BaseException]):
    doors = [Door(is_stuck=False), Door(is_stuck=True, error=error)]
    with pytest.raises(ValueError, match="no wood"), closed_on_error(doors):
        raise ValueError("no wood")
    assert all(door.is_closed for door in doors)
