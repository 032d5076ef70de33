"""Check that the column rules match the source's tables. Pure: from facts and configuration to results."""

from collections.abc import Iterator

from replicator.config import ColumnRuleBook, Config
from replicator.config.unmatched import unmatched_columns
from replicator.model.column_rules import ColumnRules, KeyedHash
from replicator.model.common import counted
from replicator.model.table import SourceName
from replicator.operations.check.result import CheckResult, fail, listing, ok
from replicator.operations.check.source_facts import SourceFacts, TableFacts


def check_columns(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    """Yield the checks of the column rules; none if there are no rules."""
    book = ColumnRuleBook(config)
    ruled = [(table, rules) for table in facts.tables if (rules := book.of(str(table)))]
    lost = [f"{table}.{name}" for table, rules in ruled for name in _lost_keys(table, rules, config)]
    if lost:
        yield fail(
            "columns: keys",
            f"excluded or masked: {listing(lost)}",
            "hash key columns instead, or remove them from the rules",
        )
    if unlisted := _unlisted(ruled):
        yield fail(
            "columns: unlisted",
            f'these tables would pause (unlisted = "pause"): no rule lists {listing(unlisted)}',
            "add these columns to include, exclude, hash or mask",
        )
    if unmatched := unmatched_columns(config, {str(table): table.columns for table in facts.tables}):
        # A column whose name is misspelt in a rule would be written to the lake in clear text.
        yield fail(
            "columns: rules",
            f"no column matches {listing(unmatched)}",
            "correct the names (a renamed column: its current name), or remove the rules; only * and ? are wildcards",
        )
    elif ruled and not lost and not unlisted:
        yield ok("columns: rules", f"match {counted(len(ruled), 'table')}")


def _lost_keys(table: TableFacts, rules: ColumnRules, config: Config) -> list[str]:
    key = config.table(str(table)).key or table.key_columns
    return [n for n in key if rules.leaves_out(n) or not isinstance(rules.transform(n), KeyedHash | None)]


def _unlisted(ruled: list[tuple[TableFacts, ColumnRules]]) -> list[str]:
    """Return columns for which their tables would pause."""
    return [
        f"{table}.{name}"
        for table, rules in ruled
        for name in rules.unlisted(SourceName(column, column) for column in table.columns)
    ]
