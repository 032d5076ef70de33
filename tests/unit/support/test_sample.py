"""`pytest --one-case`: which cases run."""

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.conftest import pytest_collection_modifyitems

MARKS = {"a": ("spark",), "b": ("stack",), "c": ("spark", "every_case"), "d": (), "e": ("spark", "long")}
"""The marks of tests that have five cases each."""


@dataclass(eq=False)
class Case:
    """What pytest tells of a case of a test."""

    nodeid: str
    marks: tuple[str, ...]
    user_properties: list[object] = field(default_factory=list)

    def iter_markers(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in self.marks]

    def get_closest_marker(self, name: str) -> bool:
        return name in self.marks


def chosen(cases: list[Case]) -> list[str]:
    """Return the cases that run, sorted."""
    left_out: list[Case] = []

    def deselect(items: list[Case]) -> None:
        left_out.extend(items)

    hook = SimpleNamespace(pytest_deselected=deselect)
    config: Any = SimpleNamespace(getoption=lambda name: name == "--one-case", hook=hook)
    found: Any = [*cases]
    pytest_collection_modifyitems(config, found)
    assert {*found, *left_out} == {*cases}
    return sorted(case.nodeid for case in found)


def test_one_case_of_each_slow_test_runs_and_is_the_same_in_every_order() -> None:
    cases = [
        Case(f"test_some.py::test_{test}[{n}]", marks) for test, marks in MARKS.items() for n in range(5)
    ]
    found = chosen(cases)
    assert found == chosen(cases[::-1])
    # The mark `long` is left to the option -m.
    assert Counter(name.partition("[")[0][-1] for name in found) == {"a": 1, "b": 1, "c": 5, "d": 5, "e": 5}


def test_all_cases_run_without_the_option() -> None:
    config: Any = SimpleNamespace(getoption={"--one-case": False}.get)
    cases: Any = [Case(f"test_some.py::test_a[{n}]", ("spark",)) for n in range(5)]
    pytest_collection_modifyitems(config, cases)
    assert len(cases) == 5
