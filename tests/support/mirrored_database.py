"""A source database whose connector runs, and the configuration of its mirror."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from replicator.verify.mirror_check import Wanted, verify
from replicator.verify.results import Report, Verdict
from tests.support.mirror import START_S, Comparison, until
from tests.support.replica import Replica
from tests.support.source import SourceDatabase
from tests.workload.random_writer import RandomTable, RandomWriter, create_tables, random_tables


@dataclass
class MirroredDatabase:
    """One database with `tables`, whose connector runs; `config` is its mirror's configuration file."""

    database: SourceDatabase
    tables: list[RandomTable]
    config: Path
    folder: Path

    @property
    def comparison(self) -> Comparison:
        return Comparison.of(self.database, self.config)

    def assert_verified(self) -> None:
        """Assert that `replicator verify`, which shares no code with `comparison`, finds the mirror equal.

        The mirror and the connector must be running. A table that changes too much meanwhile is undecided, for
        example because the connector reads it again; the check is repeated then.
        """
        report = until(self._decided_check, seconds=START_S, doing="a check that is decided")
        found = [(t.table, t.verdict, t.reason, list(t.rows)[:3], t.schema) for t in report.tables]
        assert report.verdict is Verdict.EQUAL, found

    def _decided_check(self) -> Report | None:
        report = verify(load(self.config), Wanted(may_be_resumed=False))
        return None if report.verdict is Verdict.UNDECIDED else report

    def lake_rows(self, table: str) -> list[dict[str, Any]] | None:
        """Return the rows of a mirror by their first column; None if there is none."""
        lake = self.comparison.config.lake
        with open_catalog(lake) as catalog:
            if not catalog.table_exists((lake.namespace, table)):
                return None
            found: list[dict[str, Any]] = (
                catalog.load_table((lake.namespace, table)).scan().to_arrow().to_pylist()
            )
        return sorted(found, key=lambda row: next(iter(row.values())))

    def topic(self, table: str) -> str:
        return f"{self.database.prefix}.{self.database.name}.{table}"

    def writer(self, seed: int, pause: float) -> RandomWriter:
        return RandomWriter(
            lambda: self.database.connect(autocommit=False), self.tables, seed=seed, keys=200, pause=pause
        )

    @contextmanager
    def writers(self, *seeds: int, pause: float = 0.1) -> Iterator[None]:
        """Run writers during the block."""
        writers = [self.writer(seed, pause) for seed in seeds]
        for writer in writers:
            writer.start()
        try:
            yield
        finally:
            for writer in writers:
                writer.stop()
            counts = [writer.join() for writer in writers]
        assert all(c["commits"] > 0 for c in counts)

    def configured(self, name: str, text: str) -> Path:
        """Write another configuration file, and return its path."""
        path = self.folder / name
        path.write_text(text)
        return path


class MirroredDatabaseBuilder:
    """Fill the database of a test, configure its mirror and register its connector."""

    def __init__(self, database: SourceDatabase, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def __call__(
        self,
        *,
        tables: int = 10,
        log: str = "",
        extra: str = "",
        seed_rows: bool = True,
        source: str = "",
        prepare: Sequence[str] = (),
        replica: Replica | None = None,
    ) -> MirroredDatabase:
        """Create the tables, run the statements in `prepare`, write the configuration and register the connector.

        `log`, `source` and `extra` are lines of the configuration, in which {name} stands for the database's name. With
        `replica`, connector and mirror read from that server.
        """
        generated = random_tables(tables)
        with self._database.connect() as connection:
            create_tables(connection, generated)
        name = self._database.name
        self._database.execute(*(statement.replace("{name}", name) for statement in prepare))
        text = self._database.config_text(self._folder, extra.replace("{name}", name))
        text = text.replace("[lake]", f"{log}\n[lake]").replace(
            "[log]", f"{source}\n[log]".replace("{name}", name)
        )
        if replica is not None:
            text = replica.as_source(text)
        mirrored = MirroredDatabase(self._database, generated, self._folder / "mirror.toml", self._folder)
        mirrored.config.write_text(text)
        if seed_rows:
            writer = mirrored.writer(0, pause=0)
            writer.start()
            until(lambda: writer.counts["commits"] >= 50, seconds=START_S, doing="rows are written")
            writer.stop()
            writer.join()
        if replica is not None:
            replica.catch_up()
        register(load(mirrored.config))
        return mirrored


def quarantined(mirrored: MirroredDatabase) -> list[dict[str, Any]]:
    """Return the rows of the quarantine table; an empty list if it does not exist."""
    with open_catalog(mirrored.comparison.config.lake) as catalog:
        name = (mirrored.comparison.config.lake.ops_namespace, "quarantine")
        if not catalog.table_exists(name):
            return []
        return list(catalog.load_table(name).scan().to_arrow().to_pylist())
