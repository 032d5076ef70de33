"""Compare the mirrors of a test with what their changelogs say."""

from collections import Counter
from typing import Any

from pyiceberg.catalog import Catalog

from replicator.config import Config
from replicator.lake.catalog.tables import Lake
from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.commit_marker import CommitMarker
from replicator.model.table import SOURCE_KEY
from replicator.operations.rebuild.rebuild import rebuild_tables
from replicator.schema.evolution.changes import PENDING_CLEAR_KEY, PENDING_FILLS_KEY, SCHEMA_KEY, SchemaState
from tests.oracle.compare import lake_rows

ELSEWHERE = "rebuilt"


def assert_rebuilds_equal_mirrors(catalog: Catalog, lake: Lake, config: Config) -> int:
    """Rebuild all mirrors that have what their changelogs have, and compare the rows. Return their number."""
    names = [
        table for _, table in catalog.list_tables(config.lake.namespace) if _agree(catalog, config, table)
    ]
    for name in names:
        source = catalog.load_table((config.lake.namespace, name)).properties[SOURCE_KEY]
        rebuild_tables(config, lake, [source], to=ELSEWHERE)
        left, right = (
            Counter(map(_text, lake_rows(catalog, ns, name))) for ns in (config.lake.namespace, ELSEWHERE)
        )
        assert left == right, f"{name}: mirror {left - right}, rebuilt {right - left}"
    return len(names)


def _text(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in row.items()))


def _agree(catalog: Catalog, config: Config, name: str) -> bool:
    """Return whether a mirror and its changelog have the same events and the same schema version."""
    namespaces = (config.lake.namespace, config.lake.changes_namespace)
    if not all(catalog.table_exists((ns, name)) for ns in namespaces):
        return False
    mirror, changelog = (catalog.load_table((ns, name)) for ns in namespaces)
    if mirror.properties[SOURCE_KEY] != changelog.properties[SOURCE_KEY]:
        # A rename was interrupted.
        return False
    if {PENDING_FILLS_KEY, PENDING_CLEAR_KEY} & mirror.properties.keys():
        return False
    states = [SchemaState.from_json(t.properties[SCHEMA_KEY]).at for t in (mirror, changelog)]
    markers = [newest_marker(t) for t in (mirror, changelog)]
    if None in markers or states[0] != states[1]:
        return False
    reached = [_offsets(marker) for marker in markers if marker is not None]
    snapshot = markers[0].snapshot if markers[0] is not None else None
    return reached[0] == reached[1] and (snapshot is None or not snapshot.replaces_rows)


def _offsets(marker: CommitMarker) -> dict[str, dict[int, int]]:
    return {t: {p: r.next_offset for p, r in ps.items()} for t, ps in marker.progress.items()}
