"""Generate docs/faults.md, the fault matrix, from marks of the tests.

    python -m tests.support.faults

writes the page (`make faults`); a test fails if the committed page differs. A test shows a fault by its marks:

    @pytest.mark.fault(
        "A broker is killed", area="Log", on="Kafka, MySQL, Kafka Connect", outcome="reading waits, and continues"
    )
    def test_...

Arguments are texts, `area` is one of `AREAS`. `lost` is "nothing" by default; anything else is a limit that the page
must tell. A test has several marks if it shows several faults. The marks are read from the source text, so that the
page lists only tests that exist, and also those that only `make test-long` runs.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"
PAGE: Final = ROOT / "docs" / "faults.md"
AREAS: Final = (
    "Process",
    "Servers",
    "Log",
    "Events",
    "Source",
    "Lake",
    "Other writers",
    "Archive",
    "Any of them",
)
"""The tables of the page, in their order."""

_HEAD: Final = """<!-- Generated from the marks of the tests by `make faults`; do not edit. -->

# Faults

What happens when something fails. Each row is a test that makes the fault happen, and then compares what is there with
what must be there; the page lists only tests that exist.

- *On*: what runs in the test. MySQL, Debezium, Kafka and the others are the real programs. Where events were written by
  hand, or by the model in `tests/oracle`, no server runs. The lake is always a real Iceberg lake: a JDBC catalog and
  local files, if nothing else is said.
- *Lost*: what the lake lacks in the end.
- *Run by*: the target of the Makefile. `make test-long` repeats many with more kills and random examples.

[Limits](reference/limits.md) lists what is not handled; [Exactly once](explanation/exactly-once.md) explains the rest.
"""


class MarkError(Exception):
    """A mark is incomplete or misspelt."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the page.

    Attributes:
        what: the fault.
        on: the components with which the test runs.
        outcome: what the mirror does.
        lost: the changes that are lost.
        test: the test's path in the repository, and its name.
        run_by: the target of the Makefile that runs it.
    """

    area: str
    what: str
    on: str
    outcome: str
    lost: str
    path: str
    test: str
    run_by: str


def read_faults(folder: Path = TESTS, root: Path = ROOT) -> list[Fault]:
    """Return the marks of all tests in a folder, in the order of their files.

    Raises:
        MarkError: a mark lacks an argument, has an unknown one, or an area that the page does not have.
    """
    found: list[Fault] = []
    for file in sorted(folder.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "mark.fault" in text:
            found += _of_file(ast.parse(text), file.relative_to(root).as_posix())
    return found


def _of_file(module: ast.Module, path: str) -> Iterator[Fault]:
    of_module = [
        ast.unparse(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    known = set[ast.AST]()
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = [ast.unparse(d) for d in node.decorator_list] + of_module
            is_long = "pytest.mark.long" in marks
            for decorator in node.decorator_list:
                if _is_fault(decorator):
                    known.add(decorator)
                    yield _fault(decorator, path, node.name, "make test-long" if is_long else "make test")
    if other := [node for node in ast.walk(module) if _is_fault(node) and node not in known]:
        raise MarkError(f"{path}:{other[0].lineno}: a fault is a mark of a test function")


def _is_fault(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault"


def _fault(call: ast.Call, path: str, test: str, run_by: str) -> Fault:
    try:
        (what,) = (ast.literal_eval(a) for a in call.args)
        values = {"lost": "nothing"} | {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        fault = Fault(what=what, path=path, test=test, run_by=run_by, **values)
    except (ValueError, TypeError) as error:
        raise MarkError(f"{path}, {test}: {error}") from error
    texts = (fault.area, fault.what, fault.on, fault.outcome, fault.lost)
    if not all(isinstance(text, str) and text and "\n" not in text for text in texts):
        raise MarkError(f"{path}, {test}: the arguments of a fault are texts of one line")
    if fault.area not in AREAS:
        raise MarkError(f"{path}, {test}: no area {fault.area!r}; the areas are {', '.join(AREAS)}")
    return fault


def render(faults: Sequence[Fault]) -> str:
    """Return the page."""
    by_area = {area: [fault for fault in faults if fault.area == area] for area in AREAS}
    tables = [f"## {area}\n\n{_table(rows)}\n" for area, rows in by_area.items() if rows]
    return "\n".join([_HEAD, *tables])


def _table(faults: Sequence[Fault]) -> str:
    lines = ["| Fault | On | What happens | Lost | Test | Run by |", "|" + " --- |" * 6]
    for fault in faults:
        test = f"`{fault.path}`<br>`{fault.test}`"
        cells = (fault.what, fault.on, fault.outcome, fault.lost, test, f"`{fault.run_by}`")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(read_faults()), encoding="utf-8")


if __name__ == "__main__":
    main()
