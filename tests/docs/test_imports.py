"""docs/concepts/architecture.md says who may import whom; here the code is held to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/offbeat"
PAGE = (ROOT / "docs/concepts/architecture.md").read_text()


def layers() -> dict[str, int]:
    """unit -> layer, from the page's table."""
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)
    return {unit: int(layer) for layer, units in rows for unit in re.findall(r"`(\w+)`", units)}


def module_of(path: Path) -> str:
    parts = ["offbeat", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}


def unit_of(module: str) -> str:
    return module.split(".")[1]


class Imports(ast.NodeVisitor):
    """Collects the modules that a file imports; `at_load_only`: those that are loaded when it is."""

    def __init__(self, *, at_load_only: bool) -> None:
        self.names: set[str] = set()
        self._at_load_only = at_load_only

    def generic_visit(self, node: ast.AST) -> None:
        for part in ast.iter_child_nodes(node):
            if not isinstance(part, ast.expr):  # which imports nothing
                self.visit(part)

    def visit_If(self, node: ast.If) -> None:
        checked_only = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for part in node.orelse if checked_only and self._at_load_only else [*node.body, *node.orelse]:
            self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not self._at_load_only:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.names |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        whole = {f"{base}.{alias.name}" for alias in node.names}
        self.names |= (whole & MODULES.keys()) or {base}


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@cache
def imports_of(module: str, *, at_load_only: bool = False) -> set[str]:
    visitor = Imports(at_load_only=at_load_only)
    visitor.visit(parsed(module))
    return visitor.names


def own(names: set[str]) -> Iterator[str]:
    return (name for name in sorted(names) if name.startswith("offbeat."))


def reachable(module: str) -> set[str]:
    """All that is loaded when `module` is: modules of offbeat and of others."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += imports_of(name, at_load_only=True) if name in MODULES else ()
    return seen


def test_the_table_names_each_unit_of_the_package_once():
    units = {unit_of(module) for module in MODULES if module != "offbeat"}
    assert set(layers()) == units


def test_the_tree_on_the_page_names_each_unit_of_the_package():
    tree = PAGE.split("```")[1]
    for unit in layers():
        assert re.search(rf"^  {unit}(\.py|/) ", tree, re.MULTILINE), unit


@pytest.mark.parametrize("package", ["workers", "runtime"])
def test_the_tables_on_the_page_name_each_module_of_these_packages(package):
    modules = [name.rpartition(".")[2] for name in MODULES if name.startswith(f"offbeat.{package}.")]
    assert [module for module in modules if f"`{module}`" not in PAGE and f"`{module}/`" not in PAGE] == []


def test_imports_point_to_lower_layers():
    rank = layers()
    wrong = [
        f"{module} (layer {rank[unit_of(module)]}) imports {name} (layer {rank[unit_of(name)]})"
        for module in sorted(MODULES.keys() - {"offbeat"})
        for name in own(imports_of(module))
        if unit_of(name) != unit_of(module) and rank[unit_of(name)] >= rank[unit_of(module)]
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: set(own(imports_of(module))) for module in MODULES if module != "offbeat"}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError and names the circle


@pytest.mark.parametrize(
    "module", ["offbeat.runtime.actor_process", "offbeat.models.acting", "offbeat.models.mlp", "offbeat.envs.make"]
)
def test_modules_that_actors_need_never_import_torch(module):
    assert not {name for name in reachable(module) if name.partition(".")[0] == "torch"}


@pytest.mark.parametrize("module", ["offbeat", "offbeat.cli.main"])
def test_the_help_command_imports_no_heavy_package(module):
    heavy = {"torch", "numpy", "gymnasium", "matplotlib", "tensorboard", "rich"}
    assert not {name.partition(".")[0] for name in reachable(module)} & heavy
