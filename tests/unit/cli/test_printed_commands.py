"""Every command that the product prints can be pasted: next steps, examples, and lines that `init` and the stack print.

All string literals of the code are searched. Values that are filled in at run time are replaced by examples.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from replicator.cli import app
from replicator.cli.next_steps import commands_in, next_step_lines, pasted, remember_config

ROOT = Path(__file__).parents[3] / "replicator"
GROUP: Any = typer.main.get_command(app)
_EXAMPLE = "shop.orders"
_MENTION = re.compile(r"\breplicator ([a-z]+)((?: --?[a-z][-a-z]*)*)")


@cache
def texts(file: Path) -> tuple[tuple[int, str], ...]:
    """Return the string literals of a file but docstrings, with placeholders for values, each with its line."""
    return tuple(_texts(file))


def _texts(file: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    }
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(p.value) if isinstance(p, ast.Constant) else _EXAMPLE for p in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def printed() -> Iterator[tuple[str, str]]:
    """Yield each command that the operator is told to run, with its place in the code."""
    for file in sorted(ROOT.rglob("*.py")):
        for line, text in texts(file):
            place = f"{file.relative_to(ROOT)}:{line}"
            for command in commands_in(" ".join(text.split())):
                yield place, command


def examples(command: Any, name: str = "replicator") -> Iterator[tuple[str, str]]:
    """Yield the examples of the help texts."""
    for example in re.findall(r"^ +(replicator [^\n|>&]+?)(?: {2,}.*)?$", command.help or "", re.MULTILINE):
        if not example.endswith((",", ".", ";")):
            yield f"help of {name}", example
    for sub, inner in getattr(command, "commands", {}).items():
        yield from examples(inner, f"{name} {sub}")


def problem(command: str) -> str | None:
    """Return why the command line would refuse a command; None if it would run it."""
    text = (
        command.replace("FILE", "shop.toml")
        .replace("…", "x")
        .replace("NAME", "name")
        .replace("TABLE", _EXAMPLE)
    )
    group = GROUP
    words = shlex.split(text)[1:]
    names = ["replicator"]
    while hasattr(group, "commands"):
        if not words or words[0] not in group.commands:
            return f"there is no command {' '.join([*names, *words[:1]])}"
        names.append(words[0])
        group = group.commands[words.pop(0)]
    try:
        group.make_context(" ".join(names), list(words), resilient_parsing=False)
    except Exception as error:  # noqa: BLE001 - typer brings its own click
        refused: str = getattr(error, "format_message", lambda found=error: str(found))()
        return refused
    return None


COMMANDS = sorted({*printed(), *examples(GROUP)})


def test_commands_are_found() -> None:
    commands = {command for _, command in COMMANDS}
    assert {"replicator check", "replicator connect", "replicator stack up"} <= commands
    assert len(commands) > 60


def test_printed_commands_are_valid() -> None:
    found = [(place, command, problem(command)) for place, command in COMMANDS]
    assert [entry for entry in found if entry[-1] is not None] == []


def test_every_mention_of_a_command_names_one_with_its_options() -> None:
    wrong = []
    for file in sorted(ROOT.rglob("*.py")):
        for line, text in texts(file):
            for name, options in _MENTION.findall(" ".join(text.split())):
                command = GROUP.commands.get(name)
                if command is None:
                    continue
                known = {"--help", *(option for parameter in command.params for option in parameter.opts)}
                unknown = [o for o in options.split() if not hasattr(command, "commands") and o not in known]
                wrong += [f"{file.relative_to(ROOT)}:{line}: {name} {option}" for option in unknown]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("run: replicator connect, which corrects it; or permit it", ["replicator connect"]),
        ("run: replicator heal shop.orders; or wait: the mirror reads it", ["replicator heal shop.orders"]),
        ("run: replicator drop 'shop.a b' --purge -c FILE", ["replicator drop 'shop.a b' --purge -c FILE"]),
        ("create one with: replicator init", ["replicator init"]),
        ("replicator run applies them", []),
        ("`replicator archive --from x` lists them", ["replicator archive --from x"]),
    ],
)
def test_commands_are_found_in_next_steps(text: str, commands: list[str]) -> None:
    assert commands_in(text) == commands


def test_next_step_has_each_command_on_a_line_of_its_own_with_the_configuration() -> None:
    remember_config(Path("my shop.toml"))
    try:
        assert list(next_step_lines("run: replicator check")) == ["replicator check -c 'my shop.toml'"]
        assert list(next_step_lines("run: replicator connect, which corrects it; or permit it")) == [
            "run: replicator connect, which corrects it; or permit it",
            "  replicator connect -c 'my shop.toml'",
        ]
        assert pasted("replicator maintain -c FILE") == "replicator maintain -c 'my shop.toml'"
        assert pasted("replicator stack up") == "replicator stack up"
    finally:
        remember_config(None)
    assert pasted("replicator maintain -c FILE") == "replicator maintain"
