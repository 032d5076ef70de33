"""Generate the reference pages of docs/ that repeat facts of the code.

    python -m tests.support.reference_pages

writes the pages of `PAGES` into docs/reference/ (`make reference`). A test fails if a committed page differs.
"""

import ast
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, PlainValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.main import get_command

import replicator.config.template
from replicator import errors
from replicator.cli import app
from replicator.config.changes import FIXED
from replicator.config.models import Config
from replicator.config.sections import ArchiveLog, KafkaLog

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "reference"
_NOTE: Final = "<!-- Generated from the code by `make reference`; do not edit. -->\n"
_TEMPLATE: Final = Path(replicator.config.template.__file__).with_name("template.toml")


def _page(title: str, about: str, *parts: str) -> str:
    return "\n".join([_NOTE, f"# {title}\n", f"{about}\n", *parts]).rstrip() + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# ---- commands


def cli_page() -> str:
    """Return the page of all commands, from their help."""
    root: Any = get_command(app)
    return _page(
        "Command line",
        "`replicator COMMAND --help` prints the same text. Commands that use a configuration read `replicator.toml` "
        "in the current folder unless `-c FILE` or the environment variable `REPLICATOR_CONFIG` names another file. "
        "[Errors](errors.md) explains exit codes and messages.\n\n"
        + _table(
            ("environment variable", "meaning"),
            [(f"`{name}`", VARIABLES[name]) for name in VARIABLES if name in used_variables()],
        ),
        *(_command(f"replicator {name}", command, 2) for name, command in root.commands.items()),
    )


VARIABLES: Final = {
    "REPLICATOR_CONFIG": "Configuration file, if `-c` is not given.",
    "REPLICATOR_CACHE": "Folder for Java libraries and servers; default `~/.cache/replicator`.",
    "REPLICATOR_DEBUG": "If it is set, an error is shown with its stack trace.",
    "REPLICATOR_IVY_SETTINGS": "Ivy settings file for the download of Java libraries, for example with a mirror.",
    "REPLICATOR_MYSQL": "MySQL that `stack up` and `record --binlog` start without `--mysql`: a version or a path.",
    "REPLICATOR_MYSQLD": "Program that `stack up` starts as MySQL.",
    "REPLICATOR_MYSQL_ROOT": "Folder of the Debian system with MySQL that `stack up` creates.",
}


def used_variables() -> set[str]:
    """Return the environment variables that the code names."""
    files = (ROOT / "replicator").rglob("*.py")
    return {
        name for file in files for name in re.findall(r"REPLICATOR_[A-Z_]+", file.read_text(encoding="utf-8"))
    }


def _command(path: str, command: Any, level: int) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    children: Mapping[str, Any] = getattr(command, "commands", {})
    words = [path, "COMMAND" if children else "", "[OPTIONS]" if options else ""]
    words += [argument.metavar or argument.name.upper() for argument in arguments]
    parts = [f"{'#' * level} {path}\n", f"```text\n{' '.join(filter(None, words))}\n```\n"]
    parts.append(_prose(command.help or ""))
    rows = [(f"`{_option(p)}`", _sentence(p.help), _default(p)) for p in (*arguments, *options)]
    if rows:
        parts.append(_table(("option", "meaning", "default"), rows))
    parts += [_command(f"{path} {name}", child, level + 1) for name, child in children.items()]
    return "\n".join(parts)


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    value = parameter.metavar or ("N" if isinstance(parameter.default, int) else "TEXT")
    return names if parameter.is_flag else f"{names} {value}"


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", True)
    value = shown if isinstance(shown, str) else parameter.default
    return "" if value is None or value is False or value in ("", (), []) else f"`{value}`"


def _prose(text: str) -> str:
    """Turn a help text into Markdown: paragraphs, and code for those that keep their line breaks."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", _dedented(text)):
        if not paragraph.lstrip().startswith("\b"):
            parts.append(" ".join(paragraph.split()))
            continue
        lines = paragraph.replace("\b", "").strip("\n").splitlines()
        if not lines[0].startswith(" "):
            parts.append(lines.pop(0))
        width = min((len(line) - len(line.lstrip()) for line in lines), default=0)
        parts.append("```text\n" + "\n".join(line[width:] for line in lines) + "\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _dedented(text: str) -> str:
    lines = text.splitlines()
    indents = [len(line) - len(line.lstrip(" ")) for line in lines[1:] if line.strip(" \b")]
    width = min(indents, default=0)
    return "\n".join([*lines[:1], *(line[width:] for line in lines[1:])])


# ---- configuration


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """A key of the configuration template: its comment and its example value."""

    comment: str
    value: str


_HEADER: Final = re.compile(r"^(?:# *)?\[\[?(?P<name>[a-z_.]+)\]\]?$")
_ENTRY: Final = re.compile(r'^(?:# *)?(?P<key>"?[a-z_.]+"?) = (?P<value>.*)$')


def template_entries() -> tuple[dict[str, str], dict[str, dict[str, TemplateEntry]]]:
    """Return the comment of each section, and section → key → entry, as the template has them."""
    sections: dict[str, str] = {}
    entries: dict[str, dict[str, TemplateEntry]] = {}
    comment: list[str] = []
    section, last = "", False
    for line in _TEMPLATE.read_text(encoding="utf-8").splitlines():
        if found := _HEADER.match(line):
            section = found["name"]
            sections[section], entries[section] = " ".join(comment), {}
            comment = []
        elif (found := _ENTRY.match(line)) and section:
            entries[section][found["key"]] = TemplateEntry(" ".join(comment), found["value"])
            last = True
            continue
        elif line.startswith("#"):
            comment = [] if last else comment
            comment.append(line.removeprefix("#").strip())
        else:
            comment = []
        last = False
    return sections, entries


SECTIONS: Final = (
    "mirror",
    "source",
    "log",
    "lake",
    "apply",
    "bootstrap",
    "heal",
    "columns",
    "schema_changes",
    "maintenance",
    "tags",
    "pipelines",
    "verify",
    "spark",
    "table",
    "log_table",
)


REPEATED: Final = ("table", "log_table")


def section_fields(name: str) -> dict[str, FieldInfo]:
    """Return the keys of a section and their fields in the models."""
    if name == "log":
        return {**ArchiveLog.model_fields, **KafkaLog.model_fields}
    if name in REPEATED:
        fields = typing.get_args(Config.model_fields[f"{name}s"].annotation)[0].model_fields
        return {field.alias or key: field for key, field in fields.items()}
    model = Config.model_fields[name].annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    return dict(model.model_fields)


def configuration_page() -> str:
    """Return the page of all configuration keys: types and defaults of the models, texts of the template."""
    sections, entries = template_entries()
    parts = []
    for name in SECTIONS:
        fields = section_fields(name)
        description = entries[name]
        rows = []
        for key in (*(k for k in description if k in fields), *(k for k in fields if k not in description)):
            entry = description.get(key, TemplateEntry(_ELSEWHERE.get((name, key), ""), ""))
            default = _SPECIAL_DEFAULTS.get((name, key)) or _default_of(fields[key], entry, section=name)
            values = _values(fields[key]) if (name, key) != ("log", "kind") else "`kafka`, `archive`"
            rows.append((f"`{key}`", values, default, entry.comment))
        title = f"[[{name}]]" if name in REPEATED else f"[{name}]"
        parts.append(f"## `{title}`\n")
        if about := sections[name]:
            parts.append(f"{about}\n")
        parts.append(_table(("key", "value", "default", "meaning"), rows))
    return _page(
        "Configuration",
        "One TOML file configures one mirror; `replicator init` writes it with comments. Unknown keys are errors, with "
        "the line number. Relative paths start at the folder of the file.\n\n"
        'A *secret* is `{ env = "NAME" }` for an environment variable or `{ file = "PATH" }` for a file; the file '
        "never contains the secret itself. A *pattern* matches names: `*` matches any text, `?` matches one character, "
        "and every other character stands for itself.\n\n"
        "`replicator reload` lets a running mirror read the file again. Changes of these keys need a restart: "
        + ", ".join(f"`{key}`" if "." in key else f"`[{key}]`" for key, _ in FIXED)
        + ". See [Change the configuration of a running mirror](../how-to/change-configuration.md).",
        *parts,
    )


_ELSEWHERE: Final = {
    ("log", "path"): "Folder of the archive, or a URL such as s3://bucket/folder.",
    (
        "log",
        "options",
    ): 'Options of the Kafka clients, with librdkafka\'s names, such as `"security.protocol"`.',
}
"""Comments for keys that the template documents elsewhere."""

_SPECIAL_DEFAULTS: Final = {
    ("log", "bootstrap_servers"): "*required* if kind is `kafka`",
    ("log", "topic_prefix"): "*required* if kind is `kafka`",
    ("log", "path"): "*required* if kind is `archive`",
    ("columns", "unlisted"): "`allow`",
}

_VALIDATORS: Final = {
    "parse_trigger": "interval, or `continuous`",
    "parse_duration": "time, as in `5 days`",
    "parse_size": "size, as in `128 MB`",
    "parse_source_url": "URL",
    "_table_pattern": "table pattern",
    "_table_name": "`database.table`",
    "_column_pattern": "column pattern",
    "_partition": "partition transform",
    "_table": "`namespace.table`",
    "parse_shape": "table of columns and types",
    "_secret": "secret",
    "_option": "string, number, boolean or secret",
}
_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "`true`, `false`", Path: "path"}


def _values(info: FieldInfo) -> str:
    return _described(info.annotation, list(info.metadata))


def _described(kind: Any, metadata: list[Any]) -> str:
    validators = [getattr(m.func, "__name__", "") for m in metadata if isinstance(m, PlainValidator)]
    if validators and validators[0] in _VALIDATORS:
        return _VALIDATORS[validators[0]]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _described(arguments[0], list(arguments[1:]))
    if origin is Literal:
        return ", ".join(f"`{str(a).lower() if isinstance(a, bool) else a}`" for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return _described(next(a for a in arguments if a is not type(None)), [])
    if origin is tuple:
        return f"list: {_described(arguments[0], [])}"
    if origin is Mapping:
        return f"table: {_described(arguments[1], [])}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "table: " + ", ".join(f"`{name}`" for name in kind.model_fields)
    return _PLAIN.get(kind, "string")


def _default_of(info: FieldInfo, entry: TemplateEntry, *, section: str) -> str:
    if info.is_required():
        return "*required*"
    if info.default_factory is not None or section == "schema_changes":
        return f"`{entry.value}`"
    value = info.default
    if value is None or value is PydanticUndefined or value in ((), {}) or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    # For a parsed value, the template has its written form.
    parsed = isinstance(value, float) or any(isinstance(m, PlainValidator) for m in info.metadata)
    return f"`{entry.value}`" if parsed else f"`{value!r}`".replace("'", '"')


# ---- errors


def errors_page() -> str:
    """Return the page of the error classes, from their docstrings."""
    rows = []

    def add(error: type[errors.ReplicatorError], depth: int) -> None:
        text = _sentence((error.__doc__ or "").split("\n\n")[0]).replace("`", "")
        rows.append((f"{'&ensp;&ensp;' * depth}`{error.__name__}`", str(error.exit_code), text))
        for child in error.__subclasses__():
            if child.__module__ == errors.__name__:
                add(child, depth + 1)

    add(errors.ReplicatorError, 0)
    return _page("Errors", _ERRORS, _table(("error", "exit code", "meaning"), rows))


_ERRORS: Final = """\
A command that fails prints two lines to standard error: what is wrong, and the next step.

```text
error: shop.toml:79: apply.triger: unknown key; did you mean "trigger"?
next:  edit shop.toml and try again
```

| exit code | meaning |
| --- | --- |
| 0 | Success. |
| 1 | The command ran successfully, and its result is negative: a check failed, or a table is paused. |
| 2 | Wrong use, wrong configuration, or no Java. |
| 3 | Failure at run time. |
| 130 | Interrupted by Ctrl-C. |

`REPLICATOR_DEBUG=1` shows the stack trace too. Secrets never appear in messages or log lines.

An error that concerns one table does not stop the mirror: the table is retried or paused, and `replicator status`
shows the reason and the next step. See [Read tables again](../how-to/re-reads.md).

## Error classes

The name of the class appears in stack traces and in the Python API. A class inherits from the one above it with less
indentation."""


# ---- log lines


def log_lines_page() -> str:
    """Return the page of the log lines: the calls of loggers in the code, and the fields of a batch."""
    rows = sorted({line for file in sorted((ROOT / "replicator").rglob("*.py")) for line in _log_calls(file)})
    order = {"info": 0, "warning": 1, "error": 2}
    rows.sort(key=lambda row: (order[row[0]], row[1]))
    return _page(
        "Log lines",
        _LOG_LINES,
        "## Fields of a `batch` line\n",
        _table(("field", "meaning"), list(BATCH_FIELDS)),
        "## Other lines\n",
        _table(("level", "event", "fields"), [(a, f"`{b}`", c) for a, b, c in rows]),
    )


_LOG_LINES: Final = """\
`replicator run` and `replicator replay` write structured log lines to standard error: coloured text on a terminal,
otherwise one JSON object per line with the fields `timestamp` (UTC), `level`, `logger` and `event`. Standard output has
only the summary at the end. Spark's own log is `spark.log` in the state folder.

```text
replicator run -c shop.toml 2>> shop.jsonl
jq -r 'select(.level != "info") | [.timestamp, .event, .table, .reason] | @tsv' shop.jsonl
```

A field whose name contains a word such as `password`, `secret` or `token` is replaced by `(hidden)`.
"""

BATCH_FIELDS: Final = (
    ("`batch`", "Number of the batch in this process."),
    ("`events`", "Change events that were read."),
    ("`rows`", "Changes by kind: `INSERT`, `UPDATE_BEFORE`, `UPDATE_AFTER`, `DELETE`, `TRUNCATE`."),
    ("`tables`", "Number of mirrored tables with a commit."),
    ("`seconds`", "Duration of the batch."),
    ("`stages`", "Seconds per stage. Tables are processed in parallel, so the sum may exceed `seconds`."),
    ("`events_per_second`", "`events` divided by `seconds`."),
    ("`lag_seconds`", "Commit time minus the newest source commit time; null for a batch without changes."),
    (
        "`backlog`",
        "Events that were left for later batches, because tables have too many of them. Only if there are any.",
    ),
    ("`quarantined`", "Events that went to quarantine. Only if there are any; the level is then `warning`."),
    ("`paused`", "Tables that are paused. Only if there are any; the level is then `warning`."),
)


_FIELDS = {"exc_info": "exception"}
"""Argument of a logger's method → the field that it becomes."""


def _log_calls(file: Path) -> Iterator[tuple[str, str, str]]:
    """Yield level, event and fields of each call of a logger in a module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("info", "warning", "error") or not _is_logger(node.func.value):
            continue
        if node.args and isinstance(node.args[0], ast.Constant):
            fields = ", ".join(f"`{_FIELDS.get(k.arg, k.arg)}`" for k in node.keywords if k.arg)
            yield node.func.attr, str(node.args[0].value), fields


def _is_logger(node: ast.expr) -> bool:
    return "log" in ast.unparse(node).lower()


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "log-lines.md": log_lines_page,
}


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
