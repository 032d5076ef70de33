"""A day of a database: all kinds of statements, in sessions with odd settings, while others write."""

from collections.abc import Sequence

import pytest

from replicator.config import load
from replicator.operations.status.read import read_status
from replicator.verify.mirror_check import Wanted, verify
from replicator.verify.results import Verdict
from tests.support.mirror import HEALING_MIRROR, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads
from tests.workload.ordinary_day import Session, sessions

SETTLE_S = 600


def test_short_day_leaves_no_table_wrong_or_paused(mirror_database: MirroredDatabaseBuilder) -> None:
    assert_settles(mirror_database, [session for session in sessions() if session.brief], 2)


@pytest.mark.fault(
    "A day's ordinary statements, in sessions with odd settings",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="each table equals the source within minutes, without a command",
)
@pytest.mark.long
def test_day_of_all_kinds_of_statements_leaves_no_table_wrong_or_paused(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    assert_settles(mirror_database, sessions(), 4)


def assert_settles(mirror_database: MirroredDatabaseBuilder, day: Sequence[Session], tables: int) -> None:
    """Assert that the mirror equals the source some time after a day, by itself."""
    mirrored = mirror_database(tables=tables, extra=HEALING_MIRROR)
    other = f"other_{mirrored.database.name}"
    mirrored.database.execute(f"CREATE DATABASE `{other}`")
    try:
        with running(mirrored.config, mirrored.folder / "out.log") as mirror:
            # The tables change while the mirror reads them for the first time, and afterwards.
            with mirrored.writers(1, pause=0.05):
                await_rereads(mirror, tables)
                for session in day:
                    if mirrored.database.has_version(session.since):
                        session.run(
                            lambda charset: mirrored.database.connect(charset=charset),
                            mirrored.database.name,
                            other,
                        )
            await_settled(mirrored, mirror)
            assert mirror.stop() == 0, mirror.tail()
    finally:
        mirrored.database.execute(f"DROP DATABASE `{other}`")


def await_settled(mirrored: MirroredDatabase, mirror: MirrorProcess) -> None:
    """Wait until `verify` finds no difference, and no table is paused."""
    left: list[str] = ["not checked yet"]

    def is_settled() -> bool:
        assert mirror.is_alive(), mirror.tail()
        left[:] = unsettled(mirrored)
        return not left

    try:
        until(is_settled, seconds=SETTLE_S, doing="the day to settle")
    except AssertionError:
        raise AssertionError("\n".join([*left, mirror.tail()])) from None


def unsettled(mirrored: MirroredDatabase) -> list[str]:
    """Return what is wrong with the mirror now."""
    config = load(mirrored.config)
    paused = [
        f"{t.table} is {t.state}: {t.reason}" for t in read_status(config).tables if t.state == "paused"
    ]
    if paused:
        return paused
    report = verify(config, Wanted(may_be_resumed=False))
    return [
        f"{t.table} is {t.verdict}: {t.reason or ''} {list(t.rows)[:2]} {list(t.schema)}"
        for t in report.tables
        if t.verdict is not Verdict.EQUAL
    ]
