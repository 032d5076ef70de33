"""Call the command line, and replace the modules behind it."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code and the output of one call."""

    code: int
    out: str
    err: str


def replace_module(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Replace the module `name` by one that has only `functions`."""
    module = ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)
