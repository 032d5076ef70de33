"""Compare the configuration of a running mirror with a new one: what changed, and what needs a restart. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from replicator.config.models import Config
from replicator.errors import ConfigError

FIXED: Final = (
    ("mirror", "other commands find the process by it"),
    ("source.url", "the positions of two servers cannot be compared"),
    ("log.kind", "the lake continues with the events of its log"),
    ("log.path", "the lake continues with the events of its log"),
    ("log.topic_prefix", "the lake continues with the events of its log"),
    ("log.format", "it must change together with the connector"),
    ("log.flattened", "it must change together with the connector"),
    ("lake", "Spark opens the catalog once"),
    ("spark", "Java has been started with it"),
    ("columns.hash_key", "Spark hides it in its output only if it was started with it"),
)
"""Keys, or whole sections, that a running process cannot change, and why. It can change all others."""


def changed_keys(old: Config, new: Config) -> tuple[str, ...]:
    """Return the keys whose values differ, in the order of the sections, as in "source.tables".

    The keys of a table's section are named with the table: 'table "shop.orders".partition'. A section that was added
    or removed counts as one key: 'table "shop.orders"'. Values are not part of the result.
    """
    return tuple(_changed(old, new))


def refuse_fixed(changed: Iterable[str]) -> None:
    """Raise ConfigError if a running process cannot change one of these keys."""
    found = {key: reason for key in changed for name, reason in FIXED if f"{key}.".startswith(f"{name}.")}
    if found:
        raise ConfigError(
            "a running mirror cannot change " + "; ".join(f"{key} ({why})" for key, why in found.items()),
            "restart the mirror; or restore these keys and reload again",
        )


def _changed(old: Config, new: Config) -> Iterator[str]:
    for name in type(old).model_fields:
        if name == "tables":
            yield from _changed_tables(
                "table", {t.name: t for t in old.tables}, {t.name: t for t in new.tables}
            )
        elif name == "log_tables":
            yield from _changed_tables(
                "log_table", {t.table: t for t in old.log_tables}, {t.table: t for t in new.log_tables}
            )
        else:
            yield from (f"{name}.{key}" for key in _different(getattr(old, name), getattr(new, name)))


def _changed_tables(
    section: str, before: Mapping[str, BaseModel], after: Mapping[str, BaseModel]
) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        if name not in before or name not in after:
            yield f'{section} "{name}"'
        else:
            fields, different = type(after[name]).model_fields, _different(before[name], after[name])
            yield from (f'{section} "{name}".{fields[key].alias or key}' for key in different)


def _different(old: BaseModel, new: BaseModel) -> list[str]:
    """Return the fields in which two sections differ; those of another kind of section differ if they have a value."""
    fields = dict.fromkeys((*type(old).model_fields, *type(new).model_fields))
    return [name for name in fields if _value(old, name) != _value(new, name)]


def _value(section: BaseModel, name: str) -> Any:
    return getattr(section, name, None)
