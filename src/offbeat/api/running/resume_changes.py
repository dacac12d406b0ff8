"""The changes that a resume makes to the files of a run directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offbeat.config.changes import Changed
from offbeat.config.config import Config
from offbeat.config.run_config import LIMITS
from offbeat.core.errors import ConfigError
from offbeat.core.files import replace_or_overwrite, stage, sync
from offbeat.core.strict_json import LARGEST_RECORD, Unreadable, read_small
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import BEST, LATEST

if TYPE_CHECKING:
    from offbeat.metrics.counters import Counters
    from offbeat.run_directory.store import CheckpointStore


class DirectoryChanges:
    """The changes that a resume makes to a run directory.

    The config is replaced, and metrics lines and checkpoints after the resumed checkpoint, which becomes the latest,
    are deleted. If settings were changed, the old config stays in the directory.
    """

    def __init__(
        self,
        directory: RunDirectory,
        config: Config,
        checkpoint: str,
        counters: Counters,
        logged: int,
        changed: Changed,
    ) -> None:
        """Prepare the changes.

        Args:
            directory: the run directory.
            config: the config of the resumed run.
            checkpoint: the name of the checkpoint.
            counters: the counters of the checkpoint.
            logged: the learning step of the last metrics line before the checkpoint.
            changed: the settings that differ from those of the run so far.

        Raises:
            ConfigError: a file of the directory was changed by another program.
        """
        from offbeat.metrics.sinks import last_line_up_to

        self._directory = directory
        self._env_steps = counters.env_steps
        self._new_latest = (
            None if checkpoint == LATEST else _linkable(directory.checkpoint_store(), checkpoint, self._env_steps)
        )
        """The name of the checkpoint that becomes the latest; None if it is the latest already."""
        self._before = {path: _content(path) for path in (directory.status_file, directory.tracker_file)}
        last, self.metrics_size = last_line_up_to(directory.metrics_file, counters.learning_step)
        """Bytes of the metrics lines that stay."""
        self.lost_lines = _lost_lines(directory.path / directory.metrics_file.name, last, logged)
        """A message about metrics lines that are missing at the end; '' if there are none."""
        self._configs = {directory.config_file: config.as_toml()}
        """The new content of config files by path, in the order in which they are written."""
        changed = {key: values for key, values in changed.items() if key not in LIMITS}
        if changed:
            note = f"# the settings up to env step {self._env_steps}; then these were changed: {', '.join(changed)}\n"
            old = {directory.next_old_config(): note.encode() + directory.config_file.read_bytes()}
            self._configs = {**old, **self._configs}

    def commit(self) -> None:
        """Write all new files, then replace the config, the link `latest` and the metrics, each atomically.

        The order matters if the process is killed in between. Until the link is changed, nothing is lost, and the next
        resume continues from the newest checkpoint: before the config is replaced with the old settings, and afterwards
        with the new ones. From the change of the link on it continues from the chosen checkpoint with the new settings,
        and removes the later metrics lines and checkpoints itself.

        The undo renames a copy of the old config, which is made first: this needs no space on the disk.

        Raises:
            OSError: the disk is full or fails; nothing was changed.
        """
        from offbeat.metrics.sinks import first_lines

        store, directory = self._directory.checkpoint_store(), self._directory
        files: dict[Path, bytes | Iterator[bytes]] = {**self._configs}
        if directory.metrics_file.exists():
            files[directory.metrics_file] = first_lines(directory.metrics_file, self.metrics_size)
        with ExitStack() as temporary, ExitStack() as undo:
            staged: dict[Path, Path] = {}
            for path, content in files.items():
                staged[path] = stage(path, content)
                temporary.callback(_if_possible, staged[path].unlink, missing_ok=True)
            old = directory.config_file.with_name(f".{directory.config_file.name}.old")
            temporary.callback(_if_possible, old.unlink, missing_ok=True)
            shutil.copy(directory.config_file, old)
            sync(old)
            for path in self._configs:
                if path == directory.config_file:
                    undo.callback(_if_possible, old.replace, path)
                else:
                    undo.callback(_if_possible, path.unlink, missing_ok=True)
                staged.pop(path).replace(path)
            sync(directory.folder)
            if self._new_latest is not None:
                undo.callback(_if_possible, store.restore_latest, store.linked_latest())
                store.make_latest(self._new_latest)
            for path, new in staged.items():
                new.replace(path)
            undo.pop_all()
        with suppress(OSError):  # all has been changed: it is too late to refuse
            sync(directory.folder)
        store.drop_beyond(self._env_steps)

    def roll_back(self) -> bool:
        """Restore the directory as it was before the resume, except for log.txt. Return True: no change remains."""
        for path, content in self._before.items():
            if content is None:
                _if_possible(path.unlink, missing_ok=True)
            else:
                _if_possible(replace_or_overwrite, path, content)
        return True


def _linkable(store: CheckpointStore, name: str, env_steps: int) -> str:
    """Return the name of the directory of a checkpoint, for a link.

    In a copy of a run without links, `best` is a directory, which the next best weights replace.

    Args:
        store: the checkpoints of the run.
        name: best or step-<12 digits>.
        env_steps: the env steps of this checkpoint.

    Raises:
        ConfigError: `best` is a directory, and the checkpoint that it is a copy of is missing.
    """
    found = store.path(name).resolve().name
    return store.path(f"step-{env_steps:012d}").name if found == BEST else found


def _lost_lines(metrics: Path, last: int, logged: int) -> str:
    """Return a message about metrics lines that are missing at the end; '' if there are none.

    Args:
        metrics: the path of the file, for the message.
        last: the learning step of the last line in the file.
        logged: the learning step of the last line before the checkpoint.
    """
    if last >= logged:
        return ""
    return f"{metrics} lacks its lines for learning steps {last + 1} to {logged}. The run continues without them"


def _content(path: Path) -> bytes | None:
    """Return the content of a small file; None if there is none.

    Raises:
        ConfigError: it is a device, a pipe or a folder, or too large to be of offbeat: it may come from someone else,
            and not fit into memory.
    """
    try:
        return read_small(path, LARGEST_RECORD)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        raise ConfigError(f"{path} {error}: delete it") from None


def _if_possible(change: Callable[..., object], *arguments: object, **named: object) -> None:
    """Change a file or a link. If the disk fails, it stays as it is."""
    with suppress(OSError):
        change(*arguments, **named)
