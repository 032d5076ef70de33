"""Do the column rules fit the source's tables? Pure: from facts and configuration to results."""

from collections.abc import Iterator

from replicator.check.result import CheckResult, fail, listing, ok, warn
from replicator.check.source_facts import SourceFacts, TableFacts
from replicator.config import ColumnRuleBook, ColumnsConfig, Config
from replicator.model.columns import ColumnRules, KeyedHash, fits


def check_columns(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    """Nothing where there are no rules."""
    book = ColumnRuleBook(config)
    ruled = [(table, rules) for table in facts.tables if (rules := book.of(str(table)))]
    lost = [f"{table}.{name}" for table, rules in ruled for name in _lost_keys(table, rules, config)]
    if lost:
        yield fail(
            "columns: keys",
            f"to be left out or masked: {listing(lost)}",
            "hash key columns instead, or take them out of the rules",
        )
    if idle := _idle(facts, config):
        # A misspelt name would let a column through as it is.
        yield warn("columns: rules", f"no column is called {listing(idle)}", "check the spelling")
    elif ruled and not lost:
        yield ok("columns: rules", f"fit {len(ruled)} tables")


def _lost_keys(table: TableFacts, rules: ColumnRules, config: Config) -> list[str]:
    key = config.table(str(table)).key or table.key_columns
    return [n for n in key if rules.leaves_out(n) or not isinstance(rules.shield(n), KeyedHash | None)]


def _idle(facts: SourceFacts, config: Config) -> list[str]:
    """Patterns that no column fits which they are for."""
    sections: list[tuple[ColumnsConfig, tuple[TableFacts, ...]]] = [(config.columns, facts.tables)]
    sections += [(t.columns, tuple(f for f in facts.tables if str(f) == t.name)) for t in config.tables]
    return [
        pattern
        for rules, tables in sections
        if tables
        for pattern in (*rules.include, *rules.exclude, *rules.hash, *rules.mask)
        if not any(fits(name, (pattern,)) for table in tables for name in table.columns)
    ]
