"""Call the command line, and replace the modules behind it."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Keep the exit code of one call and what it printed."""

    code: int
    out: str
    err: str


def replace_module(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Replace the module `name` by one that has `functions` alone."""
    module = ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)
