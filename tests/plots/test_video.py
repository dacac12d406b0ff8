from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np
import pytest
from PIL import Image
from tests.support.runs import files_up_to

from offbeat.core.errors import ConfigError, RunFailed
from offbeat.plots.video import Frame, write_video


def frames(count: int, height: int = 40, width: int = 60) -> Iterator[Frame]:
    """A white square that moves to the right, on red."""
    for index in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[..., 0] = 200
        frame[:10, 5 * index : 5 * index + 10] = 255
        yield frame


def read_mp4(path: Path) -> tuple[dict[str, Any], list[Frame]]:
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, [np.frombuffer(data, np.uint8).reshape(height, width, 3) for data in reader]


def test_an_mp4_has_every_frame_at_the_given_frame_rate(tmp_path):
    path = write_video(frames(8), tmp_path / "new" / "run.mp4", fps=10)
    about, read = read_mp4(path)
    assert about["fps"] == 10
    assert len(read) == 8
    assert np.abs(read[0][20:, :, 0].astype(int) - 200).max() < 20


def test_an_mp4_of_odd_size_is_padded_by_a_pixel(tmp_path):
    _, read = read_mp4(write_video(frames(3, 41, 61), tmp_path / "odd.mp4", fps=5))
    assert read[0].shape == (42, 62, 3)


def test_a_gif_has_every_frame_at_the_given_frame_rate(tmp_path):
    with Image.open(write_video(frames(5), tmp_path / "run.gif", fps=20)) as picture:
        assert getattr(picture, "n_frames", 1) == 5
        assert picture.size == (60, 40)
        assert picture.info["duration"] == 50


@pytest.mark.parametrize("name", ["run.avi", "run"])
def test_a_video_file_with_another_suffix_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"must end in .mp4 or .gif, for example .*run\.mp4"):
        write_video(frames(2), tmp_path / name, fps=5)


@pytest.mark.parametrize("folder", [".", "/", ".."])
def test_a_folder_in_place_of_a_video_file_is_refused(folder):
    with pytest.raises(ConfigError, match=rf"must end in .mp4 or .gif, for example {Path(folder, 'picture.mp4')}$"):
        write_video(frames(2), Path(folder), fps=5)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_in_a_folder_where_nothing_can_be_written_is_refused(suffix):
    with pytest.raises(ConfigError, match=r"/proc/run\.\w+ cannot be written, .* to the folder /proc \(.+\)"):
        write_video(frames(2), Path("/proc/run").with_suffix(suffix), fps=5)


def test_a_folder_with_the_name_of_a_video_is_refused_by_this_name(tmp_path):
    (tmp_path / "run.gif").mkdir()
    with pytest.raises(ConfigError, match=r"run\.gif cannot be written \(Is a directory\): pass another file"):
        write_video(frames(2), tmp_path / "run.gif", fps=5)


def test_an_mp4_without_ffmpeg_is_refused_with_the_extra_to_install_or_gif(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "imageio_ffmpeg")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match=r"offbeat\[video\].*run\.gif"):
        write_video(frames(2), tmp_path / "run.mp4", fps=5)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_that_cannot_be_completed_leaves_the_earlier_one(tmp_path, suffix):
    def failing() -> Iterator[Frame]:
        yield from frames(3)
        raise ConfigError("the env cannot be rendered")

    path = write_video(frames(2), tmp_path / f"run{suffix}", fps=5)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="cannot be rendered"):
        write_video(failing(), path, fps=5)
    with pytest.raises(RunFailed, match="no frames"):
        write_video([], path, fps=5)
    assert path.read_bytes() == before
    link, path = tmp_path / f"link{suffix}", path.rename(tmp_path / "newest")
    link.symlink_to(path)
    write_video(frames(5), link, fps=5)
    assert link.is_symlink()
    assert path.read_bytes() != before
    assert sorted(tmp_path.iterdir()) == [link, path]


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_without_frames_is_refused(tmp_path, suffix):
    with pytest.raises(RunFailed, match="no frames"):
        write_video([], tmp_path / f"run{suffix}", fps=5)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_frame_of_another_shape_is_refused(tmp_path, suffix):
    mixed = [*frames(2), np.zeros((10, 10, 3), np.uint8)]
    with pytest.raises(RunFailed, match=r"frame 2 .*\[10, 10, 3\].*\[40, 60, 3\]"):
        write_video(mixed, tmp_path / f"run{suffix}", fps=5)


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (np.zeros((4, 4, 3)), r"float64 \[4, 4, 3\]"),
        (np.zeros((4, 4), np.uint8), r"uint8 \[4, 4\]"),
        (np.zeros((4, 4, 4), np.uint8), r"uint8 \[4, 4, 4\]"),
        ([np.zeros((4, 4, 3), np.uint8)], "list"),
        (None, "NoneType"),
    ],
    ids=["float", "grey", "alpha", "list", "nothing"],
)
def test_a_frame_that_is_no_picture_is_refused(tmp_path, frame, what):
    with pytest.raises(RunFailed, match=rf"frame 0 .* is {what}, but an array uint8 \[height, width, 3\] is expected"):
        write_video([frame], tmp_path / "run.gif", fps=5)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_that_does_not_fit_on_the_disk_is_an_error(tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    remedies = "(raise the limit of file sizes.*|free some disk space), or pass another file"  # ffmpeg may not say why
    with files_up_to(100), pytest.raises(RunFailed, match=rf"{path} could not be written .*: {remedies}"):
        write_video(frames(8), path, fps=5)


def test_a_frame_rate_of_zero_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="fps is 0"):
        write_video(frames(2), tmp_path / "run.gif", fps=0)
