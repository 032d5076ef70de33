"""Find the position of a transaction or of a time in the changelogs of several tables."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.errors import CheckFailed
from replicator.model.moments import AsOf, Bound
from replicator.operations.rebuild.changes import AT


def find_bound(as_of: AsOf, changelogs: Sequence[DataFrame]) -> Bound | None:
    """Return the position for what the operator asked for; None for a time after all changes.

    A transaction counts completely. A time is the position before the first transaction with a later change: MySQL
    assigns times before the order of the binlog, so a later transaction with an earlier time does not count.

    Args:
        changelogs: the changes of the tables that are rebuilt; see `read_changes`.

    Raises:
        CheckFailed: no changelog has the transaction.
    """
    if as_of.bound is not None:
        return as_of.bound
    fields = [F.col(AT).getField(name).alias(name) for name in ("position_key", "gtid", "ts_ms", "op")]
    changes = reduce(DataFrame.unionByName, [rows.select(*fields) for rows in changelogs])
    if as_of.gtid is not None:
        return _after_transaction(changes, as_of.gtid)
    later = F.col("ts_ms") > F.lit(as_of.time_ms)
    first = changes.where(later).agg(F.min("position_key"), F.min_by("gtid", "position_key")).collect()[0]
    if first[0] is None:
        return None
    if first[1] is None:
        return Bound(first[0] - 1)
    # Without GTIDs it is not known where the transaction of the change begins.
    begin = changes.where(F.col("gtid") == first[1]).agg(F.min("position_key")).collect()[0][0]
    return Bound(begin - 1)


def _after_transaction(changes: DataFrame, gtid: str) -> Bound:
    found = changes.where(F.lower("gtid") == gtid.lower()).agg(F.max("position_key")).collect()[0][0]
    if found is None:
        raise CheckFailed(
            f"no changelog has a change of the transaction {gtid}",
            "name a position of the binlog; for the state after a transaction that changed other tables, MySQL's "
            "mysqlbinlog shows it",
        )
    return Bound(found)
