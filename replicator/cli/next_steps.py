"""Print next steps so that their commands can be pasted into a shell. Imports nothing that takes time."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_COMMAND: Final = re.compile(r"(\b(?:run|with|one|next|or|then): |`)(replicator (?:'[^']*'|[^;`\n'])*)")
_END: Final = re.compile(r"(?:'[^']*'|[^',.)]|[,.](?! |$))*")
_PLACEHOLDER: Final = " -c FILE"
_SUBCOMMAND: Final = re.compile(r"replicator (?:quarantine )?[a-z]+")
_NAME: Final = re.compile(r"replicator (?:quarantine )?[a-z]+")
_WITHOUT_CONFIG: Final = ("demo", "init", "stack")

_config: list[Path] = []


def remember_config(file: Path | None) -> None:
    """Let next steps name the configuration file of this command; None if no option names one."""
    _config[:] = [] if file is None else [file]


def commands_in(text: str) -> list[str]:
    """Return the commands that a next step tells the operator to run, without the words around them."""
    found = []
    for match in _COMMAND.finditer(text):
        part = _END.match(match[2].partition(" (")[0])
        command = (part[0] if part else match[2]).strip().rstrip(".:")
        # In backticks, a name without arguments says which command is meant.
        is_name = match[1] == "`" and _NAME.fullmatch(command)
        if "…" not in command and not is_name and command not in found:
            found.append(command)
    return found


def pasted(command: str) -> str:
    """Return a command with the configuration file of this one."""
    bare = command.replace(_PLACEHOLDER, "")
    found = _SUBCOMMAND.match(bare)
    words = bare.split()
    if not _config or found is None or words[1] in _WITHOUT_CONFIG or "-c" in words:
        return bare
    return f"{found[0]} -c {shlex.quote(str(_config[0]))}{bare[found.end() :]}"


def next_step_lines(step: str) -> Iterator[str]:
    """Yield the lines of a next step: its text, and then each command alone, unless the text ends with it."""
    commands = commands_in(step)
    text = " ".join(step.replace(_PLACEHOLDER, "").split())
    last = commands[-1].replace(_PLACEHOLDER, "") if commands else None
    if last is not None and len(commands) == 1 and text.endswith(last):
        yield text.removeprefix("run: ").removesuffix(last) + pasted(last)
        return
    yield text
    for command in commands:
        yield f"  {pasted(command)}"
