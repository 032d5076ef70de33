"""Find patterns and names of the configuration that match no table or column of the source. Pure functions."""

from collections.abc import Collection, Iterator, Mapping

from replicator.config.models import Config
from replicator.config.sections import ColumnsConfig
from replicator.model.column_rules import fits
from replicator.model.common import matches


def unmatched_tables(config: Config, tables: Collection[str]) -> list[str]:
    """Return the patterns of `source.tables` that match no table of the source (`database.table`)."""
    return [f'source.tables "{p}"' for p in config.source.tables if not _any(tables, p)]


def unmatched_exclusions(config: Config, tables: Collection[str]) -> list[str]:
    """Return the patterns of `source.exclude` and `verify.exclude` that match no table of the source."""
    patterns = {"source": config.source.exclude, "verify": config.verify.exclude}
    return [
        f'{section}.exclude "{p}"' for section in patterns for p in patterns[section] if not _any(tables, p)
    ]


def unmatched_sections(config: Config, tables: Collection[str]) -> list[str]:
    """Return the `[[table]]` blocks whose table is not among the source's `tables`."""
    return [f'[[table]] "{table.name}"' for table in config.tables if table.name not in tables]


def unmatched_columns(config: Config, tables: Mapping[str, Collection[str]]) -> list[str]:
    """Return the column rules that match no column: of all mirrored tables, or of the `[[table]]` block's table.

    Args:
        tables: mirrored table → its columns, as the source names them. Blocks of other tables are skipped.
    """
    every = {name for columns in tables.values() for name in columns}
    found = list(_rules("columns", config.columns, every)) if tables else []
    for table in config.tables:
        if table.name in tables:
            found += _rules(f'[[table]] "{table.name}" columns', table.columns, tables[table.name])
    return found


def _any(names: Collection[str], pattern: str) -> bool:
    return any(matches(name, (pattern,)) for name in names)


def _rules(place: str, rules: ColumnsConfig, columns: Collection[str]) -> Iterator[str]:
    """Yield the rules in one section of the configuration that match no name in `columns`."""
    kinds = {
        "include": rules.include,
        "exclude": rules.exclude,
        "hash": rules.hash,
        "mask": tuple(rules.mask),
    }
    for kind, patterns in kinds.items():
        for pattern in patterns:
            if not any(fits(name, (pattern,)) for name in columns):
                yield f'{place}.{kind} "{pattern}"'
