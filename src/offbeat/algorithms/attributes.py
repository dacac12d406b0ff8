"""The part of all algorithms that refuses a property in place of an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbeat.core.errors import ConfigError


class Attributes:
    """Base class of algorithms, whose attributes are set when they are made and in each learning step."""

    if not TYPE_CHECKING:  # or any name could be set

        def __setattr__(self, name: str, value: object) -> None:
            try:
                super().__setattr__(name, value)
            except AttributeError as error:
                given = getattr(type(self), name, None)
                if not isinstance(given, property) or given.fset is not None:
                    raise
                raise ConfigError(
                    f"{type(self).__qualname__}.{name} is a property that cannot be set, but the base class sets "
                    f"self.{name}: remove the property, and set self.{name} in __init__ or start, after the call of "
                    "super()"
                ) from error
