"""Render the annotated configuration that `replicator init` writes."""

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template

from replicator.config.loading import parse
from replicator.errors import ConfigError, UsageError

_TEMPLATE = Path(__file__).with_name("template.toml")


@dataclass(frozen=True, slots=True)
class Answers:
    """The values that differ between new configurations; the rest of the file is the same for all."""

    name: str
    url: str
    tables: tuple[str, ...]
    namespace: str
    password_env: str
    bootstrap_servers: str
    connect_url: str
    topic_prefix: str
    warehouse: str


def render_config(answers: Answers) -> str:
    """Return the text of a configuration file. Raises UsageError if an answer makes it invalid."""
    values = asdict(answers)
    values["catalog_uri"] = f"jdbc:sqlite:{_catalog_folder(answers.warehouse)}/catalog.db"
    # JSON strings and lists of strings are valid TOML too.
    quoted = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    text = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        quoted, database=answers.tables[0].split(".")[0]
    )
    try:
        parse(tomllib.loads(text), base=Path.cwd(), name="the new configuration")
    except ConfigError as error:
        raise UsageError(error.message, "see: replicator init --help") from error
    return text


def write_config(file: Path, answers: Answers, *, replace: bool = False) -> None:
    """Write a new configuration. Raises UsageError if the file exists and `replace` is not set."""
    text = render_config(answers)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w" if replace else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise UsageError(f"{file} already exists", "use another name, or --force to replace it") from None
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error


def _catalog_folder(warehouse: str) -> str:
    return "lake" if "://" in warehouse else warehouse.rstrip("/")
