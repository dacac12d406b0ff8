"""Code that a caller names by its path."""

from __future__ import annotations

import re
import signal
import sys
from types import ModuleType

import pytest
from tests.support.own_code import CarefulDQN, Rows, make_pole

from offbeat.config.importing import defer_signals, import_modules, import_path, path_of
from offbeat.core.errors import ConfigError
from offbeat.envs.registration import registry_entry


def test_import_path_returns_the_object_at_a_path():
    for code in (CarefulDQN, make_pole, Rows.forward):
        assert import_path(path_of(code, "nothing")) is code


@pytest.mark.parametrize("names", [("iniconfig",), ("own_module", "iniconfig")])
def test_a_file_in_the_current_folder_does_not_take_the_place_of_an_installed_module(names, tmp_path, monkeypatch):
    (tmp_path / "iniconfig.py").write_text("raise RuntimeError")
    (tmp_path / "own_module.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("iniconfig", "own_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import_modules(names)
    assert (str(tmp_path) in sys.path) == ("own_module" in names)


def test_modules_beside_a_named_one_come_before_installed_ones(tmp_path, monkeypatch):
    (tmp_path / "colorsys.py").write_text("ours = True")
    (tmp_path / "own_colors.py").write_text("from colorsys import ours")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("colorsys", "own_colors"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import_modules(("own_colors",))
    for name in ("colorsys", "own_colors"):
        del sys.modules[name]


def test_a_module_that_exits_when_it_is_imported_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "exiting_module.py").write_text("import sys\nsys.exit()")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"exiting_module cannot be imported \(SystemExit\): it was found") as caught:
        import_modules(("exiting_module",))
    assert 'exiting_module.py", line 2' in caught.value.__notes__[0]


def _made_by_another_function():
    def make():
        return 5

    return make


made = _made_by_another_function()


def test_a_function_that_another_one_has_made_has_the_path_of_the_module_that_has_it(monkeypatch):
    path = path_of(made, "nothing")
    assert path == f"{__name__}:made"
    assert import_path(path) is made
    function = made
    monkeypatch.delattr(sys.modules[__name__], "made")
    monkeypatch.setattr(sys.modules["__main__"], "mine", function, raising=False)
    with pytest.raises(ConfigError, match="at the top level of a module"):  # only the main program has it
        path_of(function, "nothing")


@pytest.mark.parametrize("code", [lambda: 5, Rows(None), 5])
def test_an_object_without_an_import_path_is_refused(code):
    with pytest.raises(ConfigError, match=r"at the top level of a module.*write this"):
        path_of(code, "this")


def test_signals_in_a_block_are_handled_once_each_at_its_end():
    handled: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: handled.append(number))
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_signals():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
                signal.raise_signal(number)
            assert handled == []
        assert handled == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, ignored)


def test_a_handler_that_was_not_set_from_python_stays_as_signals_are_deferred(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(signal, "getsignal", lambda _number: None)  # as in a program that embeds Python
    with defer_signals():
        monkeypatch.undo()
        assert signal.getsignal(signal.SIGINT) is before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("name", "meant"), [("Enc", ""), ("Own", " Did you mean 'OwnEncoder'?"), ("Nope", "")])
def test_only_code_of_a_module_is_suggested_for_a_name_that_it_does_not_have(monkeypatch, name, meant):
    own = ModuleType("__main__")
    vars(own).update(e=1, np=pytest, Enclosed=Rows, OwnEncoder=type("OwnEncoder", (), {"__module__": "__main__"}))
    monkeypatch.setitem(sys.modules, "__main__", own)
    end = rf"{re.escape(meant)} If it was trained by another program, define it at the top level of this one, too$"
    with pytest.raises(ConfigError, match=rf"^__main__:{name} does not exist: the main program has no {name}\.{end}"):
        import_path(f"__main__:{name}")
    with pytest.raises(ConfigError, match=r"unknown env .* If it was trained by another program, define it"):
        registry_entry(f"__main__:{name}")
