"""The page of the log lines: it lists exactly the events that the code logs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "log-lines.md"
METHODS = {"debug", "info", "warning", "error", "critical", "exception"}
LOGGERS = {"get_logger", "getLogger"}
LOGGER_NAMES = {"log", "_log", "_LOG", "logger", "_logger"}
NOT_CONSTANT = "(not a constant)"


def last_name(node: ast.expr) -> str:
    """Return the last identifier of a name or attribute: `c` of `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def creates_logger(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in LOGGERS


def assignments(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((last_name(target), node.value) for target in targets)


def logged_events(source: str) -> set[str]:
    """Return the first argument of each call of a logger's method, also of a method that has another name."""
    tree = ast.parse(source)
    loggers = LOGGER_NAMES | {name for name, value in assignments(tree) if creates_logger(value)}

    def is_method(node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and node.attr in METHODS
            and (last_name(node.value) in loggers or creates_logger(node.value))
        )

    methods = {
        name
        for name, value in assignments(tree)
        if is_method(value) or (isinstance(value, ast.IfExp) and is_method(value.body))
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (is_method(node.func) or last_name(node.func) in methods):
            event = node.args[0] if node.args else None
            constant = isinstance(event, ast.Constant) and isinstance(event.value, str)
            found.add(str(event.value) if constant else NOT_CONSTANT)  # type: ignore[union-attr]
    return found


def listed_events() -> set[str]:
    text = PAGE.read_text(encoding="utf-8")
    fields = re.findall(r"^## Fields of a `([^`]+)` line$", text, re.MULTILINE)
    lines = re.findall(r"^\| (?:debug|info|warning|error|critical) \| `([^`]+)` \|", text, re.MULTILINE)
    return {*fields, *lines}


def test_log_lines_page_lists_exactly_the_events_that_the_code_logs() -> None:
    files = sorted((ROOT / "replicator").rglob("*.py"))
    logged = {event for file in files for event in logged_events(file.read_text(encoding="utf-8"))}
    assert {"batch", "table paused", "a server answers again"} <= logged
    assert NOT_CONSTANT not in logged
    listed = listed_events()
    assert logged - listed == set(), "not on docs/reference/log-lines.md; run: make reference"
    assert listed - logged == set(), "on docs/reference/log-lines.md, but no code logs it"


def test_logged_events_are_found_however_a_logger_is_called() -> None:
    source = """
import logging, structlog
_WATCH: Final = get_logger("a")
_WATCH.info("one", field=1)
_WATCH.error(
    "two"
)
logging.getLogger("b").critical("three")
structlog.get_logger().warning("four")
self._log.exception("five")
write = _WATCH.warning if bad else _WATCH.info
write("six")
also = _WATCH.debug
also("seven")
_WATCH.setLevel("eight")
print("nine")
dialog.info("ten")
"""
    assert logged_events(source) == {"one", "two", "three", "four", "five", "six", "seven"}
    assert logged_events('log.info(f"batch {n}")') == {NOT_CONSTANT}
