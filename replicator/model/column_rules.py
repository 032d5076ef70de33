"""Column rules: exclude, mask or hash columns before anything is written.

A rule applies to the column's name in the source. Letter case is ignored, as in MySQL; `*` and `?` are wildcards. A
masked or hashed column keeps its name and its order among the columns, and its type becomes text; a column masked with
null keeps its type. NULL stays NULL under every rule.

The rules for all names that a renamed column has or had apply to it. If several apply, the strictest wins; from strict
to loose: exclude, null, text, hash, keep_last, none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from replicator.errors import UnfitColumns
from replicator.model.column_history import ColumnHistory
from replicator.model.common import matches
from replicator.model.events import adjusted_patterns, unescaped
from replicator.model.table import Column, SourceName, TableSchema
from replicator.model.transforms import Blank, ColumnTransform, KeepLast, KeyedHash, Mask
from replicator.model.types import STRING, LakeType

NO_HISTORIES: Final[Mapping[str, ColumnHistory]] = MappingProxyType({})
"""Histories of a table in which no column was renamed."""


EXCLUDED: Final = "exclude"
"""Recorded rule of an excluded column in the properties of lake tables."""


@dataclass(frozen=True, slots=True)
class Exclude:
    """The rule of an excluded column."""

    def __str__(self) -> str:
        return EXCLUDED


Rule = Exclude | ColumnTransform | None

_STRICTNESS: Final = {"": 0, "keep_last": 1, "hash": 2, "text": 3, "null": 4, EXCLUDED: 5}
"""First word of a rule as lake tables record it ("" for no rule) → its strictness; higher reveals less."""


def strictness(rule: str | None) -> int:
    """Return the strictness of a rule as lake tables record it; 0 for no rule."""
    return _STRICTNESS.get((rule or "").partition(" ")[0], _STRICTNESS[EXCLUDED])


def _strictest(rules: Iterable[Rule]) -> Rule:
    def order(rule: Rule) -> tuple[int, int]:
        # Of two `keep_last` masks, the one that keeps fewer characters is stricter.
        kept = rule.count if isinstance(rule, KeepLast) else 0
        return strictness(None if rule is None else str(rule)), -kept

    return max(rules, key=order, default=None)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Column rules from one section of the configuration, as patterns of column names.

    Attributes:
        include: if it is not empty, all other columns are excluded.
        exclude, hashes, masks: the columns that are excluded, hashed or masked.
        key: the hash key; present if `hashes` is not empty.
        plain: columns that are mirrored unchanged; excludes nothing.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    masks: tuple[tuple[str, Mask], ...] = ()
    key: bytes | None = field(default=None, repr=False)
    plain: tuple[str, ...] = ()

    def rule(self, name: SourceName) -> Rule:
        """Return the rule of a column; a hash takes precedence over a mask."""
        if _hits(name, self.exclude) or (self.include and not _allowed(name, self.include)):
            return Exclude()
        if self.key is not None and _hits(name, self.hashes):
            return KeyedHash(self.key)
        return next((mask for pattern, mask in self.masks if _hits(name, (pattern,))), None)

    def lists(self, name: SourceName) -> bool:
        """Return whether any pattern matches a column."""
        named = (*self.exclude, *self.hashes, *(pattern for pattern, _ in self.masks))
        return self.allows(name) or _hits(name, named)

    def allows(self, name: SourceName) -> bool:
        """Return whether `include` or `plain` lists a column."""
        return _allowed(name, (*self.include, *self.plain))


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """The rules of one table: its own first, then those of the whole mirror.

    A column is mirrored only if no rule set excludes it. Of masks and hashes, the table's own take precedence.

    Attributes:
        sets: the rule sets, in order of precedence.
        unlisted_wait: whether the table pauses if it has a column that no pattern matches.
        elsewhere: the rules for the table's other names; the strictest of theirs and its own applies.
    """

    sets: tuple[RuleSet, ...] = ()
    unlisted_wait: bool = False
    elsewhere: "tuple[ColumnRules, ...]" = ()

    def __bool__(self) -> bool:
        return bool(self.sets or self.unlisted_wait or self.elsewhere)

    def rule_of(self, name: str) -> Rule:
        """Return the rule of the source column `name`."""
        return self.rule((SourceName(name, name),))

    def rule(self, names: Iterable[SourceName]) -> Rule:
        """Return the strictest rule for any of the `names` that a column has or had."""
        names = tuple(names)
        own = [self._rule_for(name) for name in sorted(names)]
        return _strictest([*own, *(rules.rule(names) for rules in self.elsewhere)])

    def _rule_for(self, name: SourceName) -> Rule:
        found = [rule for rules in self.sets if (rule := rules.rule(name)) is not None]
        return next((rule for rule in found if isinstance(rule, Exclude)), found[0] if found else None)

    def allows(self, name: SourceName) -> bool:
        """Return whether any rule set lists a column as mirrored."""
        return any(rules.allows(name) for rules in self.sets)

    def unlisted(self, names: Iterable[SourceName]) -> list[str]:
        """Return the columns that pause the table because no pattern matches them."""
        if not self.unlisted_wait:
            return []
        return [name.name for name in names if not any(rules.lists(name) for rules in self.sets)]

    def transformed(
        self, schema: TableSchema, table: str, histories: Mapping[str, ColumnHistory] = NO_HISTORIES
    ) -> TableSchema:
        """Apply the rules to the source schema `schema` and return the schema of the lake table.

        `histories` maps names in `schema` to the other names that the columns had.

        Raises:
            UnfitColumns: a key column is excluded or masked, so rows could not be distinguished; or a column must be
                listed in the rules first.
        """
        known = {c.name: histories.get(c.name) or ColumnHistory.of(c) for c in schema.columns}
        self._check_listed(schema, table)
        self._check_renamed(schema, table, known)
        rules = {name: self.rule(history.names) for name, history in known.items()}
        for column in schema.key_columns:
            if not isinstance(rules[column.name], KeyedHash | None):
                raise UnfitColumns(
                    f"column {column.source_name.name} of {table} is in the key and must not be excluded or masked",
                    "hash it instead, which keeps equal values equal; or remove it from the column rules",
                )
        columns: list[Column] = []
        left_out: list[str] = []
        for column in schema.columns:
            rule = rules[column.name]
            if isinstance(rule, Exclude):
                left_out.append(column.source_name.name)
            else:
                columns.append(_transformed(column, rule))
        return replace(schema, columns=tuple(columns), left_out=tuple(left_out))

    def _check_listed(self, schema: TableSchema, table: str) -> None:
        if unlisted := self.unlisted(c.source_name for c in schema.columns):
            raise UnfitColumns(
                f"no column rule of {table} lists {', '.join(unlisted)}, "
                'and unlisted = "pause" pauses the table in that case',
                f"add {'them' if len(unlisted) > 1 else 'it'} to include (mirrored unchanged), exclude, hash or mask, "
                f'in columns of [[table]] name = "{table}" or in [columns], and run: replicator reload',
            )

    def _check_renamed(self, schema: TableSchema, table: str, histories: Mapping[str, ColumnHistory]) -> None:
        for column in schema.columns:
            history = histories[column.name]
            was = [n for n in sorted(history.maybe) if self._is_stricter(n, history.names)]
            if was and not self.allows(column.source_name):
                raise unexplained(column.source_name.name, was[0].name, table)

    def _is_stricter(self, name: SourceName, than: Iterable[SourceName]) -> bool:
        rules = (self.rule((name,)), self.rule(than))
        first, second = (strictness(None if rule is None else str(rule)) for rule in rules)
        return first > second


def stored_type(column: Column) -> LakeType:
    """Return the type of the column's values after its `transform`, if `type` is the one before."""
    return column.type if column.transform is None or isinstance(column.transform, Blank) else STRING


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a column's name matches one of `patterns`; letter case is ignored."""
    return matches(name.casefold(), (pattern.casefold() for pattern in patterns))


def _hits(name: SourceName, patterns: Sequence[str]) -> bool:
    """Return whether a pattern for protected columns matches the name in events or, as in `_allowed`, the source's."""
    return _allowed(name, patterns) or (name.in_events != name.name and fits(name.in_events, patterns))


def _allowed(name: SourceName, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches the source's name.

    If that is unknown, match any name from which the Avro name may have been made.
    """
    if name.known:
        return fits(name.name, patterns)
    adjusted = [each for pattern in patterns for each in (pattern, *adjusted_patterns(pattern))]
    return fits(name.name, adjusted) or fits(unescaped(name.name), patterns)


def unexplained(name: str, was: str, table: str) -> UnfitColumns:
    return UnfitColumns(
        f"column {name} of {table} appeared when {was} disappeared, which has a stricter column rule, and no DDL "
        "statement says whether it is the same column, renamed",
        f"if it is, give {name} the rule of {was} too; if not, add {name} to include in the column rules (include "
        "lists all columns that are mirrored); the schema-change topic (include.schema.changes=true) prevents this",
    )


def _transformed(column: Column, transform: ColumnTransform | None) -> Column:
    if transform is None:
        return column
    if isinstance(transform, Blank):
        return replace(column, transform=transform, fill=None, fill_unknown=False)
    text = None if column.fill is None else canonical_text(column.fill, column.type)
    fill = None if text is None else transform.of_text(text)
    unknown = column.fill_unknown or (column.fill is not None and fill is None)
    return replace(column, type=STRING, transform=transform, fill=fill, fill_unknown=unknown)


def canonical_text(constant: str, lake_type: LakeType) -> str | None:
    """Return the text as which a value of `lake_type` is hashed, from a constant in a table definition.

    None for floating point, whose canonical text is Java's.
    """
    match lake_type.name:
        case "int" | "long":
            return str(int(Decimal(constant)))
        case "decimal":
            return f"{Decimal(constant).quantize(Decimal(1).scaleb(-lake_type.scale)):f}"
        case "timestamp":
            whole, _, fraction = constant.partition(".")
            fraction = fraction.rstrip("0")
            return f"{whole}.{fraction}" if fraction else whole
        case "string" | "date":
            return constant
        case _:
            return None
