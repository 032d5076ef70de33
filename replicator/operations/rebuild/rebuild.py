"""Rebuild mirrors from their changelogs.

In place, one atomic commit replaces all rows of a mirror and its marker. Readers see the old rows or the new ones, and
the mirror process continues from there. A mirror that is written meanwhile is refused, as in every commit. In another
namespace, the result is an ordinary table with a record of its provenance, and the mirror process may run.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from replicator.config import Config
from replicator.errors import LakeUnavailable, MissingRows, UsageError
from replicator.jvm.spark import check_java, first_line, running_session
from replicator.lake.catalog.tables import Lake
from replicator.model.common import ShowProgress
from replicator.model.moments import AsOf
from replicator.operations.rebuild.changes import read_changes
from replicator.operations.rebuild.planning import find_bound, plan_rebuild, source_tables
from replicator.operations.rebuild.rows import LACKS_CHANGES
from replicator.operations.rebuild.writer import RebuildReport, RebuildWriter
from replicator.runner.lock import only_one


def rebuild(
    config: Config,
    patterns: Collection[str] = (),
    *,
    as_of: AsOf | None = None,
    to: str | None = None,
    dry_run: bool = False,
    on_progress: ShowProgress = lambda *_: None,
) -> tuple[RebuildReport, ...]:
    """Rebuild the mirrors of the source tables that `patterns` match, by default of all.

    Nothing is written before all tables are planned: a table that cannot be rebuilt prevents all. If the command is
    interrupted, it can be repeated.

    Args:
        as_of: the moment of the source; None for all changes that the changelogs have.
        to: the namespace of the tables; None for the mirrors themselves.
        dry_run: only count the rows.
        on_progress: called with a text, and the number of tables that are done and in all.

    Raises:
        UsageError: the mirror is running, nothing matches, or the namespace has such tables.
        SchemaError: a table cannot be rebuilt.
        FencedError, CommitConflict: another process writes a mirror.
    """
    lake = config.lake
    if to in lake.namespaces:
        raise UsageError(f"{to} is a namespace of the mirror itself", "name another one, or leave out --to")
    if lake.is_new:
        raise UsageError("the lake has no changelog yet", "start the mirror: replicator run")
    with only_one(config) if to is None and not dry_run else nullcontext(), running_session(config) as spark:
        return rebuild_tables(config, Lake(spark), patterns, as_of, to, dry_run, on_progress)


def rebuild_tables(
    config: Config,
    lake: Lake,
    patterns: Collection[str] = (),
    as_of: AsOf | None = None,
    to: str | None = None,
    dry_run: bool = False,
    on_progress: ShowProgress = lambda *_: None,
) -> tuple[RebuildReport, ...]:
    """Rebuild mirrors with an existing session; see `rebuild`."""
    sources = source_tables(config, lake, patterns, in_place=to is None)
    changes = {tables.source: read_changes(lake, tables.changelog) for tables in sources}
    on_progress("reading the changelogs", 0, len(sources))
    bound = None if as_of is None else find_bound(as_of, list(changes.values()))
    writer, planned = RebuildWriter(config, lake, as_of, bound, to), []
    for tables in sources:
        writer.check_free(tables)
        with translated(lake, f"{tables.source} cannot be rebuilt"):
            planned.append(plan_rebuild(tables, changes[tables.source], bound, in_place=to is None))
    reports = []
    for number, work in enumerate(planned):
        on_progress(work.tables.source, number, len(planned))
        with translated(lake, f"{work.tables.source} cannot be rebuilt"):
            reports.append(writer.count(work) if dry_run else writer.write(work))
        on_progress(work.tables.source, number + 1, len(planned))
    return tuple(reports)


@contextmanager
def translated(lake: Lake, failure: str) -> Iterator[None]:
    """Translate the errors of Spark's jobs; `failure` says what cannot be done then."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        check_java(lake.spark)
        if LACKS_CHANGES in str(error):
            raise MissingRows(f"{failure}: {LACKS_CHANGES}", "take a new snapshot of the table") from error
        raise LakeUnavailable(
            f"{failure}: {first_line(error)}", "check the storage, and spark.log in the state folder"
        ) from error
