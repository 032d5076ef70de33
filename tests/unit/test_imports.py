"""The lowest packages import only the standard library, and pydantic for what is configured or recorded; no circles.

import-linter has no contract that forbids everything else.
"""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import replicator

_ROOT = Path(replicator.__file__).parent
_ALLOWED = {
    "config": (
        "replicator.config",
        "replicator.schema",
        "replicator.model",
        "replicator.errors",
        "pydantic",
        "pydantic_core",
    ),
    "model": ("replicator.model", "replicator.errors", "pydantic"),
    "schema": ("replicator.schema", "replicator.model", "replicator.errors"),
}
"""Package → packages that it may import besides the standard library. `errors` may import none."""


def _imports(path: Path) -> Iterator[str]:
    """Yield the name of each imported module, also of imports inside functions and for type checking."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def _beyond(path: Path, allowed: tuple[str, ...]) -> list[str]:
    """Return imports of neither the standard library nor an allowed package."""
    return [
        name
        for name in _imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not any(name == package or name.startswith(f"{package}.") for package in allowed)
    ]


@pytest.mark.parametrize("package", sorted(_ALLOWED))
def test_package_imports_only_what_is_allowed(package: str) -> None:
    modules = sorted((_ROOT / package).rglob("*.py"))
    assert modules
    found = {path.name: names for path in modules if (names := _beyond(path, _ALLOWED[package]))}
    assert found == {}


def test_errors_import_only_the_standard_library() -> None:
    assert _beyond(_ROOT / "errors.py", ()) == []


def test_import_check_finds_forbidden_imports(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import json\ndef f():\n    import pyarrow.compute\nfrom replicator.lake import x\n"
        "from . import y\nfrom replicator.models import z\nfrom replicator.model.types import LakeType\n"
    )
    assert sorted(_beyond(module, _ALLOWED["schema"])) == [
        ".",
        "pyarrow.compute",
        "replicator.lake",
        "replicator.models",
    ]


def _graph(root: Path) -> dict[str, set[str]]:
    """Return module → modules of the same package that it imports, also in functions and for type checking."""
    found = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in root.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for module, path in found.items():
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        pairs = [(n.module or "", a.name) for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]
        names = {f"{package}.{name}" if f"{package}.{name}" in found else package for package, name in pairs}
        graph[module] = {name for name in names if name in found and name != module}
    return graph


def test_no_modules_import_each_other() -> None:
    TopologicalSorter(_graph(_ROOT)).prepare()


def test_circle_that_is_hidden_from_python_is_found(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "a.py").write_text("def f():\n    from p.b import x\n")
    (package / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import a\n"
    )
    with pytest.raises(CycleError):
        TopologicalSorter(_graph(package)).prepare()
