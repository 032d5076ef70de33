"""Refuse `[[table]]` sections that would have no effect. Pure functions."""

from collections.abc import Sequence
from typing import Protocol

from replicator.model.patterns import matches


class _Selection(Protocol):
    """The part of `[source]` that selects tables."""

    @property
    def tables(self) -> Sequence[str]: ...

    @property
    def exclude(self) -> Sequence[str]: ...

    def excludes(self, table: str) -> bool:
        """Return whether `database.table` is left out although it may match `tables`."""
        ...


class TableSectionError(ValueError):
    """A `[[table]]` section is wrong.

    Attributes:
        location: the path of the wrong key in the file.
    """

    def __init__(self, message: str, index: int, key: str) -> None:
        super().__init__(message)
        self.location = ("table", index, key)


def check_sections(names: Sequence[str], source: _Selection) -> None:
    """Check that each section has a table of its own that is mirrored.

    Raises:
        TableSectionError: it has none.
    """
    for index, name in enumerate(names):
        if (problem := _problem(name, names[:index], source)) is not None:
            raise TableSectionError(f'"{name}" {problem}', index, "name")


def _problem(name: str, earlier: Sequence[str], source: _Selection) -> str | None:
    if name in earlier:
        return "appears twice; keep one"
    if not matches(name, source.tables):
        return "does not match source.tables, so its section would have no effect"
    if not source.excludes(name):
        return None
    patterns = [pattern for pattern in source.exclude if matches(name, (pattern,))]
    if not patterns:
        return "is the signal table or a helper table, which are not mirrored; remove its section"
    return (
        f'is left out by source.exclude "{patterns[0]}", so its section would have no effect; '
        "remove the section, or the pattern"
    )
