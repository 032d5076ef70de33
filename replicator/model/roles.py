"""The roles of the lake tables that the engine makes for a source table.

A further role is an entry here. The type checker then names the places in `lake` and `batch/evolution` that must know
what it is; docs/explanation/architecture.md names the others.

Loops over all lake tables of a source table go over `LakeRole`, or over `COMMIT_ORDER` if a crash between two tables
matters; only steps that make one kind of table name a role.
"""

from enum import StrEnum
from typing import Final


class LakeRole(StrEnum):
    """What a lake table is to its source table."""

    MIRROR = "mirror"
    CHANGELOG = "changelog"

    @property
    def suffix(self) -> str:
        """What the namespace of these tables has behind `lake.namespace`."""
        return _SUFFIXES[self]


_SUFFIXES: Final = {LakeRole.MIRROR: "", LakeRole.CHANGELOG: "_changes"}

COMMIT_ORDER: Final = (LakeRole.CHANGELOG, LakeRole.MIRROR)
"""The order in which a batch commits: if the process ends in between, the mirror is behind, and nothing is lost."""
