"""Read a configuration file, and report for each error its line and how to fix it."""

import ast
import difflib
import json
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from replicator.config.models import Config
from replicator.config.sections import SectionError
from replicator.errors import ConfigError

Location = tuple[int | str, ...]

_HEADER = re.compile(r"^\s*(?P<open>\[\[?)\s*(?P<name>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, location: Location) -> int | None:
    """Return the line (from 1) of the key at `location`, else of the nearest enclosing item, else None.

    A step of `location` is a key, or the index of a `[[section]]` or list item.
    """
    found: dict[Location, int] = {}
    for line, path in _keys_by_line(text):
        for length in range(len(path), 0, -1):
            found.setdefault(path[:length], line)
    for length in range(len(location), 0, -1):
        if location[:length] in found:
            return found[location[:length]]
    return None


def _keys_by_line(text: str) -> Iterator[tuple[int, Location]]:
    section: Location = ()
    repeated: dict[Location, int] = {}
    for line, content in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(content):
            section = _parts(header["name"])
            if header["open"] == "[[":
                repeated[section] = repeated.get(section, -1) + 1
                section = (*section, repeated[section])
            elif section[:1] in repeated:
                # [table.properties] belongs to the [[table]] before it.
                section = (section[0], repeated[section[:1]], *section[1:])
            yield line, section
        elif key := _KEY.match(content):
            yield line, section + _parts(key["key"])


def _parts(dotted: str) -> Location:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


IGNORED: Final[Mapping[tuple[str, str], str]] = {
    ("heal", "max_binlog"): "lost events are not sent again any more; their tables are read again",
}
"""Keys of earlier versions that have no effect any more → why. The next release refuses them."""

_LOG: Final = logging.getLogger(__name__)
_LOG_KINDS = ("kafka", "archive")
_TYPES = {
    "string_type": "a string in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list in [brackets]",
    "dict_type": "a table of keys and values",
    "model_type": "a section of keys and values",
    "model_attributes_type": "a section of keys and values",
}


def load(path: Path) -> Config:
    """Load the configuration from `path`. Raises a ConfigError that lists every error with its line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", "create one with: replicator init") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a UTF-8 text file", "save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: not valid TOML: {error}", "strings need quotes, lists [brackets]"
        ) from None
    except RecursionError:
        raise ConfigError(f"{path}: lists or tables are nested too deeply") from None
    return parse(values, base=path.resolve().parent, name=str(path), text=text)


def parse(values: Mapping[str, Any], *, base: Path, name: str = "configuration", text: str = "") -> Config:
    """Parse the configuration in `values` (as tomllib returns them); relative paths start at `base`.

    `name` and `text` (the file's name and content) are used in error messages. Raises ConfigError.
    """
    values = _without_ignored(values, name)
    try:
        # With pydantic's JSON rules, strict types still accept a list for a tuple.
        return Config.model_validate_json(json.dumps(values, default=str), context={"base": base})
    except ValidationError as error:
        details = _without_echoes(error.errors(include_url=False))
    problems = [_problem(detail, name, text) for detail in details]
    lines = [line for _, line in sorted(problems)]
    hint = f"edit {name} and try again" if text else None
    if len(lines) == 1:
        raise ConfigError(lines[0], hint)
    raise ConfigError("\n  ".join([f"{name} has {len(lines)} errors:", *lines]), hint)


def _without_ignored(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the values without keys that have no effect any more, and warn of each."""
    for (section, key), reason in IGNORED.items():
        if isinstance(found := values.get(section), Mapping) and key in found:
            _LOG.warning("a key has no effect, remove it: %s", f"{section}.{key} in {name} ({reason})")
            values = {**values, section: {k: v for k, v in found.items() if k != key}}
    return values


def _without_echoes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Drop errors that only follow from another reported error."""
    misspelt = {(*d["loc"][:-1], _closest(d["loc"])) for d in details if d["type"] == "extra_forbidden"}
    wrong_items = {d["loc"][:-1] for d in details}
    return [
        d
        for d in details
        if not (d["type"] == "missing" and d["loc"] in misspelt)
        and not (d["type"] == "too_short" and d["loc"] in wrong_items)
        and d["type"] != "default_factory_not_called"
    ]


def _problem(detail: ErrorDetails, name: str, text: str) -> tuple[int, str]:
    cause = detail.get("ctx", {}).get("error")
    raw = cause.location if isinstance(cause, SectionError) else detail["loc"]
    # The kind of log is a step in pydantic's path, but not in the file.
    location = raw[:1] + raw[2:] if raw[:1] == ("log",) and len(raw) > 1 and raw[1] in _LOG_KINDS else raw
    if detail["type"].startswith("union_tag"):
        location = (*location, "kind")
    line = line_of(text, location)
    place = f"{name}:{line}" if line else name
    key = _dotted(location)
    return line or 0, ": ".join(part for part in (place, key, _reason(detail, raw)) if part)


def _dotted(location: Location) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _reason(detail: ErrorDetails, raw: Location) -> str:
    given = _shown(detail["input"])
    context = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            reason = str(context["error"])
        case "extra_forbidden":
            reason = _unknown_key(raw)
        case "literal_error" | "union_tag_invalid":
            reason = _not_among(detail)
        case "missing":
            reason = "required, but missing"
        case "union_tag_not_found":
            reason = 'required, but missing; write "kafka" or "archive"'
        case "greater_than_equal" | "less_than_equal":
            bound = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
            reason = f"must be {bound}, not {given}"
        case "too_short" | "string_too_short":
            reason = "must not be empty"
        case "string_pattern_mismatch":
            reason = f"{given} does not match the pattern {context['pattern']}"
        case kind if kind in _TYPES:
            reason = f"must be {_TYPES[kind]}, not {given}"
        case _:
            reason = detail["msg"]
    return reason


def _not_among(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    # As Python writes them: 'kafka', 'archive', or: 2 or 3.
    allowed = [
        ast.literal_eval(value)
        for value in re.split(", | or ", context.get("expected_tags") or context["expected"])
    ]
    given = detail["input"]["kind"] if "tag" in context else detail["input"]
    guess = _did_you_mean(str(given), [value for value in allowed if isinstance(value, str)])
    return f"must be one of {', '.join(map(_shown, allowed))}, not {_shown(given)}{guess}"


def _unknown_key(raw: Location) -> str:
    key = str(raw[-1])
    what = "key" if len(raw) > 1 else "section"
    known = _known_beside(raw)
    if guess := _did_you_mean(key, known):
        return f"unknown {what}{guess}"
    elsewhere = [section for section, model in _sections().items() if key in _keys(model)]
    if elsewhere and len(raw) > 1:
        return f"unknown key here; {key} belongs to [{elsewhere[0]}]"
    return f"unknown {what}; known are {', '.join(sorted(known))}"


def _did_you_mean(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def _closest(raw: Location) -> str | None:
    return next(iter(difflib.get_close_matches(str(raw[-1]), _known_beside(raw), n=1)), None)


def _known_beside(raw: Location) -> list[str]:
    model = _model_at(raw[:-1])
    return _keys(model) if model else []


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _sections() -> dict[str, type[BaseModel]]:
    return {key: model for key in _keys(Config) if (model := _model_at((key, "kafka"))) is not None}


def _model_at(raw: Location) -> type[BaseModel] | None:
    """Return the section that a path leads to; None if it leads into a free-form table."""
    model: type[BaseModel] | None = Config
    for step in raw:
        if isinstance(step, int) or model is None:
            continue
        if step in _LOG_KINDS and model in _log_models():
            model = _log_models()[_LOG_KINDS.index(str(step))]
            continue
        field = next(
            (field for name, field in model.model_fields.items() if step in (name, field.alias)), None
        )
        models = _models_in(field.annotation) if field else []
        model = models[0] if models else model if step in _LOG_KINDS else None
    return model


def _log_models() -> list[type[BaseModel]]:
    return _models_in(Config.model_fields["log"].annotation)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | int | float | bool) else "that"
