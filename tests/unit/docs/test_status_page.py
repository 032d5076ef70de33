"""The page of `status` names every field of its JSON."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from replicator.log_tables.status import LogTableStatus
from replicator.operations.status.mirror_status import (
    ConnectorStatus,
    MirrorStatus,
    TableMaintenance,
    TableStatus,
)
from replicator.pipelines.checked import CheckStatus
from replicator.pipelines.status import PipelineStatus
from replicator.schema.evolution.changes import ChangeNote, KeepRows

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "status.md"


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Return the words in code on the page."""
    return set(re.findall(r"`([a-z_]+)`", PAGE.read_text(encoding="utf-8")))


def test_page_names_every_field(names: set[str]) -> None:
    status = MirrorStatus("shop", "shop", (), (), {}, 0, None)
    assert set(status.to_json()) - names == set()


@pytest.mark.parametrize("kind", [TableStatus, TableMaintenance, ConnectorStatus, KeepRows, LogTableStatus])
def test_page_names_every_field_of_an_entry(names: set[str], kind: type[TableStatus]) -> None:
    assert {field.name for field in fields(kind)} - names == set()


def test_page_names_the_fields_of_a_schema_change(names: set[str]) -> None:
    # Programs get this one under another name.
    wanted = {field.name for field in fields(ChangeNote)} - {"declared"} | {"told"}
    assert wanted - names == set()


def test_page_names_every_field_of_a_pipeline(names: set[str]) -> None:
    status = PipelineStatus("revenue", "revenue.sql", "", "new", "shop_pipelines.revenue", None, ())
    wanted = {*status.to_json(), *(field.name for field in fields(CheckStatus))}
    assert wanted - names == set()
