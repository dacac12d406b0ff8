from __future__ import annotations

import json
import os
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.support.runs import files_up_to

from offbeat.core.errors import ConfigError
from offbeat.metrics.sinks import JsonLines, TensorBoard, first_lines, last_line_up_to, read_metrics


def line(step: int, **figures: float | None) -> dict[str, float | None]:
    return {"env_steps": 100 * step, "learning_step": step, **figures}


def write(path: Path, *lines: dict[str, float | None]) -> None:
    sink = JsonLines(path)
    for each in lines:
        sink.write(each)
    sink.close()


def test_lines_can_be_read_back_and_are_appended(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, line(1, sps=None), line(2, sps=0.1))
    write(path, line(3))
    for given in (path, str(path), tmp_path):
        assert read_metrics(given) == [line(1, sps=None), line(2, sps=0.1), line(3)]


def test_a_run_without_lines_has_none_and_a_path_to_nothing_is_refused(tmp_path):
    for wrong in (tmp_path, tmp_path / "metrics.jsonl", tmp_path / "runs/other"):
        with pytest.raises(ConfigError, match="does not exist: pass a run directory"):
            read_metrics(wrong)
    (tmp_path / "config.toml").touch()
    assert read_metrics(tmp_path) == read_metrics(tmp_path / "metrics.jsonl") == []


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path):
    sink = JsonLines(tmp_path / "metrics.jsonl")
    sink.write(line(1))
    assert read_metrics(tmp_path / "metrics.jsonl") == [line(1)]
    sink.close()


def long_line(step: int) -> dict[str, float | None]:
    """A line of a run with many policies: longer than the buffer of a file."""
    return line(step, **{f"policies/{policy:03}/elo": 1200.0 for policy in range(1000)})


def test_a_line_that_does_not_fit_on_the_disk_leaves_no_part_of_itself(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonLines(path)
    sink.write(long_line(1))
    with files_up_to(path.stat().st_size * 3 // 2), pytest.raises(OSError, match="File too large"):
        sink.write(long_line(2))
    sink.write(long_line(3))
    sink.close()
    assert read_metrics(path) == [long_line(1), long_line(3)]


def test_tensorboard_shows_what_is_written_after_the_disk_was_full(tmp_path):
    sink = TensorBoard(tmp_path)
    sink.write(long_line(1))
    [file] = tmp_path.iterdir()
    with files_up_to(file.stat().st_size * 3 // 2), pytest.raises(OSError, match="File too large"):
        sink.write(long_line(2))
    sink.write(long_line(3))
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("policies/000/elo")] == [100, 300]


def test_a_value_that_strict_json_does_not_support_is_refused(tmp_path):
    sink = JsonLines(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        sink.write(line(1, sps=float("nan")))
    sink.close()


@pytest.mark.parametrize("cut", [1, 10, 25])
def test_an_incomplete_last_line_is_ignored(tmp_path, cut):
    path = tmp_path / "metrics.jsonl"
    write(path, line(1), line(2))
    path.write_text(path.read_text() + json.dumps(line(3))[:cut])
    assert read_metrics(path) == [line(1), line(2)]


@pytest.mark.parametrize("wrong", [b"what is this", b"\xff\xfe", b"\x00" * 8])
def test_an_invalid_line_in_the_middle_is_refused_with_its_number(tmp_path, wrong):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"learning_step": 1}\n' + wrong + b'\n{"learning_step": 2}\n')
    with pytest.raises(ConfigError, match=r"line 2 of .*metrics\.jsonl is not a JSON object"):
        read_metrics(path)


@pytest.mark.parametrize("step", [0, 7, 299])
def test_lines_that_are_longer_than_a_piece_are_read_and_counted(tmp_path, step):
    path = tmp_path / "metrics.jsonl"
    lines = [long_line(number) if number % 5 == 0 else line(number) for number in range(300)]
    write(path, *lines)
    assert read_metrics(path) == lines
    texts = path.read_bytes().splitlines()
    last, size = last_line_up_to(path, step)
    assert last == step
    pieces = [*first_lines(path, size)]
    assert b"".join(pieces) == b"".join(text + b"\n" for text in texts[: step + 1])
    assert max(map(len, pieces)) <= 1 << 16
    texts[step] = b"what is this"
    path.write_bytes(b"".join(text + b"\n" for text in [*texts, b"{}"]))
    with pytest.raises(ConfigError, match=rf"line {step + 1} of .*metrics\.jsonl is not a JSON object: 'what is this'"):
        read_metrics(path)


def test_metrics_that_are_not_wanted_are_not_kept_in_memory(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, *(long_line(number) for number in range(100)))
    tracemalloc.start()
    try:
        found = read_metrics(path, lambda name: name == "env_steps")
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 4
    finally:
        tracemalloc.stop()
    assert found == [{"env_steps": 100 * number} for number in range(100)]


@pytest.mark.parametrize("before", [b"", b'{"learning_step": 1}\n'])
def test_a_file_that_is_much_larger_than_the_memory_is_refused(tmp_path, before):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before)
    os.truncate(path, 1 << 42)  # zeros, which take no space
    for read in (read_metrics, partial(last_line_up_to, learning_step=1)):
        with pytest.raises(ConfigError, match=r"metrics\.jsonl has a line of more than 16 MiB"):
            read(path)


def lines_up_to(path: Path, step: int) -> bytes:
    return b"".join(first_lines(path, last_line_up_to(path, step)[1]))


def test_the_lines_up_to_a_learning_step_are_complete_and_unchanged(tmp_path):
    path, shorter = tmp_path / "metrics.jsonl", tmp_path / "shorter.jsonl"
    write(path, *(line(step) for step in range(5)))
    write(shorter, *(line(step) for step in range(3)))
    path.write_text(path.read_text() + '{"env_st')
    assert lines_up_to(path, 2) == shorter.read_bytes()
    path.write_bytes(shorter.read_bytes()[:-1])  # a kill has cut the line break
    assert lines_up_to(path, 2) == shorter.read_bytes()
    assert lines_up_to(path, -1) == b""


def test_a_missing_file_has_no_lines_up_to_a_learning_step(tmp_path):
    assert last_line_up_to(tmp_path / "metrics.jsonl", learning_step=2) == (0, 0)


def test_tensorboard_shows_metrics_in_groups_over_env_steps(tmp_path):
    sink = TensorBoard(tmp_path)
    sink.write(line(1, sps=50.0, policy_loss=None, surprise=0.5))
    sink.write({**line(2, sps=60.0, policy_loss=0.25), "policies/red/entropy": 1.25})
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("speed/sps")] == [(100, 50.0), (200, 60.0)]
    assert [(event.step, event.value) for event in events.Scalars("learning/policy_loss")] == [(200, 0.25)]
    assert [event.value for event in events.Scalars("learning/surprise")] == [0.5]
    assert [event.value for event in events.Scalars("policies/red/entropy")] == [1.25]


def test_tensorboard_leaves_out_the_points_beyond_the_checkpoint_of_a_resume(tmp_path):
    before = TensorBoard(tmp_path)
    for step in (1, 2, 3):
        before.write(line(step, sps=50.0))
    before.close()
    resumed = TensorBoard(tmp_path, resumed_at=100)
    for step in (2, 3):
        resumed.write(line(step, sps=60.0))
    resumed.close()
    events = plugin_event_accumulator.EventAccumulator(str(tmp_path)).Reload()  # as TensorBoard reads them
    shown = [(event.step, list(event.tensor_proto.float_val)) for event in events.Tensors("speed/sps")]
    assert shown == [(100, [50.0]), (200, [60.0]), (300, [60.0])]
