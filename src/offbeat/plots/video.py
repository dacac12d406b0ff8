"""Writes frames to a video file: mp4 (needs ffmpeg) or an animated GIF."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.files import remedy_for, replaced
from offbeat.core.importable import is_importable
from offbeat.plots.figures import example_path

Frame = NDArray[np.uint8]
"""[height, width, 3], RGB."""


def write_video(frames: Iterable[Frame], path: Path, fps: int) -> Path:
    """Write ``frames`` to a video file, without storing them all; return ``path``.

    An existing file is replaced when the new one is complete.

    Args:
        frames: Frames of one shape, uint8 [height, width, 3].
        path: Path that ends in .mp4 (H.264, needs the extra 'video') or .gif.
        fps: Frames per second. A GIF rounds the duration of a frame to 10 ms.

    Raises:
        ConfigError: the suffix is unknown, fps is not positive, ffmpeg is not installed, or nothing can be written to
            the file or its folder.
        RunFailed: there are no frames, one is no picture or has another shape, or the disk is full.
    """
    write = {".mp4": _write_mp4, ".gif": _write_gif}.get(path.suffix.lower())
    if write is None:
        raise ConfigError(
            f"a video cannot be written to {path}: its name must end in .mp4 or .gif, for example "
            f"{example_path(path, '.mp4')}"
        )
    if fps < 1:
        raise ConfigError(f"fps is {fps}, but a video needs at least 1 frame per second")
    if write is _write_mp4:
        _require_ffmpeg(path)
    try:
        with replaced(path) as temporary:  # of a file that cannot be written, ffmpeg would only print messages
            write(_checked(frames, path), temporary, fps)
    except OSError as error:
        reason, remedy = error.strerror, remedy_for(error, "pass another file")
        if reason is None:
            reason, remedy = "ffmpeg has failed", "free some disk space, or pass another file"
        raise RunFailed(f"{path} could not be written ({reason}): {remedy}") from error
    return path


def _require_ffmpeg(path: Path) -> None:
    """Refuse an mp4 without ffmpeg, before the first frame is rendered."""
    if not is_importable("imageio_ffmpeg"):
        raise ConfigError(
            f"{path} cannot be written: the package imageio-ffmpeg is not installed. "
            f'Run pip install "offbeat[video]", or write {path.with_suffix(".gif")} instead'
        )


def _checked(frames: Iterable[Frame], path: Path) -> Iterator[Frame]:
    shape = None
    for index, frame in enumerate(frames):
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            what = f"{frame.dtype} {list(frame.shape)}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise RunFailed(
                f"frame {index} of {path} is {what}, but an array uint8 [height, width, 3] is expected: return it in "
                "the env's render()"
            )
        shape = shape or frame.shape
        if frame.shape != shape:
            raise RunFailed(
                f"frame {index} of {path} has the shape {list(frame.shape)}, but {list(shape)} is expected: all frames "
                "of a video must have the same shape"
            )
        yield frame
    if shape is None:
        raise RunFailed(f"there are no frames to write to {path}: the env rendered nothing")


def _write_mp4(frames: Iterator[Frame], path: Path, fps: int) -> None:
    import imageio_ffmpeg  # type: ignore[import-untyped]

    first = next(frames)
    height, width = first.shape[:2]
    padding = (
        (0, height % 2),
        (0, width % 2),
        (0, 0),
    )  # make both sides even: players expect 4:2:0 colors, in blocks of 2 x 2 pixels
    size = (width + width % 2, height + height % 2)
    writer = imageio_ffmpeg.write_frames(str(path), size, fps=fps, macro_block_size=2)
    writer.send(None)
    try:
        for frame in chain([first], frames):
            writer.send(np.ascontiguousarray(np.pad(frame, padding, mode="edge")))
    finally:
        writer.close()
    try:
        imageio_ffmpeg.count_frames_and_secs(str(path))
    except RuntimeError:  # the end of the file is missing, which ffmpeg only prints
        raise OSError from None


def _write_gif(frames: Iterator[Frame], path: Path, fps: int) -> None:
    from PIL import Image

    pictures = (Image.fromarray(frame).quantize() for frame in frames)
    duration_ms = max(20, 10 * round(100 / fps))  # below 20 ms browsers fall back to 100 ms
    next(pictures).save(path, save_all=True, append_images=pictures, duration=duration_ms, loop=0)
