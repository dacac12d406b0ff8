"""One game of Atari after another, played frame by frame on the emulator itself: what a column must be."""

from __future__ import annotations

from typing import Any

import ale_py
import numpy as np
from ale_py import roms

from offbeat.config.env import EnvConfig
from offbeat.core.types import Array

SIDES = (84, 84)


class SlowGame:
    """A column, as a chain of the classic wrappers would give it.

    How many frames pass before an episode begins is the vector env's own choice: `begin` is told.
    """

    def __init__(self, game: str, seed: int, settings: EnvConfig) -> None:
        rom, sticky = roms.get_rom_path(game), settings.repeat_action_probability
        assert rom is not None
        assert sticky is not None
        self._settings = settings
        self._ale = ale_py.ALEInterface()
        self._ale.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale.setFloat("repeat_action_probability", sticky)
        self._ale.setInt("random_seed", seed)
        self._ale.loadROM(rom)
        self._actions = self._ale.getMinimalActionSet()
        self._over = self._lost = False

    def begin(self, frames: int) -> None:
        """Begin a game, `frames` frames in."""
        self._ale.reset_game()
        self._over, self._frames = False, 0
        fires = self._settings.fire_reset and ale_py.Action.FIRE in self._actions
        presses = [ale_py.Action.FIRE, *[ale_py.Action.NOOP] * (frames - 1)] if fires else [ale_py.Action.NOOP] * frames
        for press in presses:
            self._ale.act(press)
        self._lives = self._ale.lives()
        self._screens = [self._ale.getScreenGrayscale()]

    @property
    def seen(self) -> Array:
        """What is observed after the last row; of a game that is over, nothing is promised."""
        return shrunk(np.maximum.reduce(self._screens), self._settings.image_sides or SIDES)

    def row(self, action: int, frames: int) -> dict[str, Any]:
        """Return a row: what became of an action, or of whatever takes its place in a reset row; see `seen`.

        Args:
            action: as the policy chose it.
            frames: before the new game begins, where one does.
        """
        if self._over:
            self.begin(frames)
            return {"reward": 0, "valid": False, "terminated": False, "truncated": False}
        if not self._lost:
            return self._play(self._actions[action])
        self._lost = False
        fires = self._settings.fire_reset and ale_py.Action.FIRE in self._actions
        row = self._play(ale_py.Action.FIRE if fires else ale_py.Action.NOOP)
        self._lost = False
        return row | {"valid": False, "terminated": False, "truncated": False}

    def _play(self, press: Any) -> dict[str, Any]:
        assert self._settings.frame_skip is not None
        assert self._settings.max_frames is not None
        reward, truncated = 0, False
        for frame in range(self._settings.frame_skip):
            reward += self._ale.act(press)
            self._frames += 1
            if frame >= self._settings.frame_skip - 2:
                self._screens = [*self._screens[-1:], self._ale.getScreenGrayscale()]
            truncated = self._frames >= self._settings.max_frames
            if self._ale.game_over() or truncated:
                break
        lives, dead = self._ale.lives(), self._ale.game_over()
        self._over = dead or truncated
        self._lost = bool(self._settings.episodic_life and 0 < lives < self._lives and not self._over)
        self._lives = lives
        return {
            "reward": reward,
            "valid": True,
            "terminated": dead or self._lost,
            "truncated": truncated and not dead,
        }

    @property
    def over(self) -> bool:
        return self._over


def shrunk(screen: Array, sides: tuple[int, int]) -> Array:
    """Return a screen of these sides: each pixel the mean of the area that it covers, parts of pixels included."""
    by_row, by_column = (_shares(size, side) for size, side in zip(screen.shape, sides, strict=True))
    return np.rint(by_row @ screen.astype(float) @ by_column.T)


def _shares(size: int, parts: int) -> Array:
    """Return how much of each of `parts` equal stretches lies in each of `size` pixels, [parts, size]."""
    edges = np.arange(parts + 1) * size / parts
    pixels = np.arange(size)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.clip(covered, 0, None) * parts / size
