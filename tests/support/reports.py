"""Read pytest's reports, and list the tests that did not run, or failed.

    python -m tests.support.reports [--all-stack] FILE...

With `--all-stack` the exit code is 1 unless every test on the real stack passed, as CI needs it. Standard library only,
so that it runs without the project's environment.
"""

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MYSQL = "mysql"
"""Property of a test on the real stack: the version of its MySQL."""
NEEDS_STACK = ("needs", "stack")
"""Property of a test on the real MySQL, Kafka and Connect."""
LEFT_OUT = "left out"
"""Property of a test that omitted a part on this server; its value is the part and the reason."""
_REASON_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One test: `failed` and `skipped` are the reason, empty if it passed."""

    name: str
    on_stack: bool
    failed: str = ""
    skipped: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """All tests of the given reports, the MySQL versions on which they ran, and the reports that do not exist."""

    cases: tuple[Case, ...]
    mysql: tuple[str, ...] = ()
    missing: tuple[Path, ...] = ()

    @property
    def failed(self) -> list[Case]:
        return [case for case in self.cases if case.failed]

    @property
    def on_stack(self) -> list[Case]:
        return [case for case in self.cases if case.on_stack]


def read_reports(files: Iterable[Path]) -> Run:
    """Read the tests of JUnit files. A file is missing if pytest ended before it wrote the file."""
    cases: list[Case] = []
    versions: dict[str, None] = {}
    missing: list[Path] = []
    for file in files:
        if not file.exists():
            missing.append(file)
            continue
        root = ET.parse(file).getroot()
        cases += map(_case, root.iter("testcase"))
        versions |= {value: None for name, value in _properties(root) if name == MYSQL}
    return Run(tuple(cases), tuple(versions), tuple(missing))


def _properties(found: ET.Element) -> Iterator[tuple[str, str]]:
    for entry in found.iter("property"):
        yield entry.get("name", ""), entry.get("value", "")


def _case(element: ET.Element) -> Case:
    properties = list(_properties(element))
    return Case(
        f"{element.get('classname', '')}.{element.get('name', '')}",
        NEEDS_STACK in properties,
        _reason(element, "failure") or _reason(element, "error"),
        _reason(element, "skipped"),
        tuple(value for name, value in properties if name == LEFT_OUT),
    )


def _reason(element: ET.Element, outcome: str) -> str:
    found = element.find(outcome)
    return "" if found is None else found.get("message", "").partition("\n")[0] or "no reason given"


def summary(run: Run) -> list[str]:
    """Return lines for the reader: the tests that did not run, by reason, and in the end those that failed."""
    real = run.on_stack
    passed = sum(not case.failed and not case.skipped for case in real)
    server = f" (MySQL {', '.join(run.mysql)})" if run.mysql else ""
    lines = [f"== tests on the real stack{server}: {passed} passed, {len(real) - passed} did not"]
    for heading, cases in (
        ("skipped on the real stack", [case for case in real if case.skipped]),
        ("skipped", [case for case in run.cases if case.skipped and not case.on_stack]),
    ):
        for reason, names in _by_reason((case.skipped, case.name) for case in cases):
            lines += [f"== {heading}: {reason}", *(f"   {name}" for name in names)]
    for reason, names in _by_reason((part, case.name) for case in run.cases for part in case.left_out):
        lines += [f"== left out: {reason}", *(f"   {name}" for name in names)]
    lines += [f"== FAILED: {file} was not written" for file in run.missing]
    lines += [f"== FAILED: {case.name}: {case.failed[:_REASON_LENGTH]}" for case in run.failed]
    return lines


def _by_reason(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = defaultdict(list)
    for reason, name in pairs:
        found[reason].append(name)
    return list(found.items())


def main(arguments: Sequence[str]) -> int:
    """Print the summary, and return the exit code."""
    run = read_reports(Path(name) for name in arguments if not name.startswith("--"))
    print("\n".join(summary(run)))
    if "--all-stack" not in arguments:
        return 0
    # A run that skipped tests on the real stack fails, whatever the reason.
    return 0 if run.on_stack and not any(case.failed or case.skipped for case in run.on_stack) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
