"""What others do to the lake in a story: roll tables back, compact them, and change their layout."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from replicator.config import Config
from replicator.lake.catalog.tables import Lake
from replicator.maintenance.table_reader import Target
from replicator.operations.maintain import maintain_tables
from tests.oracle.events import quoted
from tests.oracle.model import DATABASE, SourceTable
from tests.support.lake_harness import LakeHarness
from tests.support.story_steps import Compact, RollBack, UserDdl, Where

MIRROR: Final = "shop"
CHANGELOG: Final = "shop_changes"
NAMESPACES: Final[Mapping[Where, tuple[str, ...]]] = {
    "mirror": (MIRROR,),
    "changelog": (CHANGELOG,),
    "both": (MIRROR, CHANGELOG),
}
REWRITE: Final = (
    "CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
)
ROLL_BACK: Final = "CALL lake.system.rollback_to_snapshot('{table}', {snapshot})"


class OtherWriters:
    """Programs beside the mirror that write its lake."""

    def __init__(self, lake: LakeHarness, config: Config) -> None:
        self._lake = lake
        self._config = config
        self._spark = lake.session(config)

    def roll_back(self, table: SourceTable, step: RollBack) -> bool:
        """Roll the lake tables of a source table back, as far as they have earlier snapshots; whether any has."""
        done = False
        for namespace in NAMESPACES[step.where]:
            with self._lake.catalog() as catalog:
                line = _line(catalog, (namespace, table.name))
            if len(line) > 1:
                snapshot = line[min(step.snapshots, len(line) - 1)]
                self._sql(ROLL_BACK.format(table=f"{namespace}.{quoted(table.name)}", snapshot=snapshot))
                done = True
        return done

    def compact(self, table: SourceTable, step: Compact) -> None:
        """Rewrite the data files of a table."""
        if step.by == "maintain":
            targets = [Target(ns, table.name, f"{DATABASE}.{table.name}") for ns in (MIRROR, CHANGELOG)]
            maintain_tables(self._config, Lake(self._spark), targets)
            return
        for namespace in self._existing(table, "both"):
            self._sql(REWRITE.format(table=f"{namespace}.{quoted(table.name)}"))

    def change_layout(self, table: SourceTable, step: UserDdl) -> None:
        """Change partitions, sort order or properties of a table."""
        for namespace in self._existing(table, step.where):
            with self._lake.catalog() as catalog:
                found = catalog.load_table((namespace, table.name))
            alter = f"ALTER TABLE lake.{namespace}.{quoted(table.name)}"
            match step.what:
                case "partition" if table.key:
                    verb = "DROP" if found.spec().fields else "ADD"
                    self._sql(f"{alter} {verb} PARTITION FIELD bucket(2, {quoted(table.key[0])})")
                case "order" if table.key:
                    ordered = bool(found.sort_order().fields)
                    self._sql(
                        f"{alter} WRITE {'UNORDERED' if ordered else f'ORDERED BY {quoted(table.key[0])}'}"
                    )
                case _:
                    self._sql(f"{alter} SET TBLPROPERTIES ('team' = 'somebody')")

    def _existing(self, table: SourceTable, where: Where) -> list[str]:
        with self._lake.catalog() as catalog:
            return [ns for ns in NAMESPACES[where] if catalog.table_exists((ns, table.name))]

    def _sql(self, statement: str) -> None:
        self._spark.sql(statement).collect()


def _line(catalog: Catalog, name: tuple[str, str]) -> Sequence[int]:
    """Return the snapshots that led to the current one, from it on; empty if the table has none."""
    try:
        metadata = catalog.load_table(name).metadata
    except NoSuchTableError:
        return []
    known = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    found, at = list[int](), metadata.current_snapshot_id
    while at is not None and at in known:
        found.append(at)
        at = known[at]
    return found
