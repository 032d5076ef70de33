"""What the checks of pipelines counted, as the lake has it. Without Spark."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from replicator.config import LakeConfig
from replicator.lake.properties import PIPELINE_CHECKS
from replicator.lake.reading.catalog import MetadataCatalog, load_readable, load_table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_SHOWN: Final = timedelta(days=1)
RECOMPUTED: Final = "computed again"
"""The name of the comparison of a result with its query, beside those of its checks."""


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """What a check found in the last day.

    Attributes:
        action: what is done with rows that do not meet it: warn, drop or fail.
        rows, failed: number of rows that the newest refresh checked, and of those that did not meet it.
        failed_in_day: the sum of `failed` in the last day.
    """

    name: str
    action: str
    rows: int
    failed: int
    failed_in_day: int


def read_checks(lake: LakeConfig, catalog: MetadataCatalog) -> dict[str, tuple[CheckStatus, ...]]:
    """Return pipeline → what its checks found in the last day."""
    known = load_readable(catalog, lake.ops_namespace, PIPELINE_CHECKS, {})
    if known is None or not known.total("total-records"):
        return {}
    # Rows are read with PyIceberg, which takes a second to import; most pipelines have no checks.
    from replicator.lake.reading.reader import open_catalog  # noqa: PLC0415

    since = (datetime.now(UTC) - _SHOWN).isoformat()
    with open_catalog(lake) as reading:
        table = load_table(reading, lake.ops_namespace, PIPELINE_CHECKS)
        if table is None:
            return {}
        rows: list[dict[str, Any]] = table.scan(f"checked_at >= '{since}'").to_arrow().to_pylist()
    found: dict[tuple[str, str], CheckStatus] = {}
    for row in sorted(rows, key=lambda row: row["checked_at"]):
        key, failed = (row["pipeline"], row["check"]), row["failed"]
        before = found[key].failed_in_day if key in found else 0
        found[key] = CheckStatus(row["check"], row["action"], row["rows"], failed, before + failed)
    return {
        name: tuple(check for (of, _), check in found.items() if of == name)
        for name in {pipeline for pipeline, _ in found}
    }


def last_recomputed(catalog: "Catalog", namespace: str) -> dict[str, datetime]:
    """Return pipeline → when its result was last compared with its query by a running mirror."""
    table = load_table(catalog, namespace, PIPELINE_CHECKS)
    if table is None:
        return {}
    scan = table.scan(f"check = '{RECOMPUTED}'", selected_fields=("pipeline", "checked_at"))
    rows: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return {row["pipeline"]: row["checked_at"] for row in sorted(rows, key=lambda row: row["checked_at"])}
