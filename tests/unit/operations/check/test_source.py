"""Checks of the source server."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from replicator.config import Config
from replicator.config.models import ApplyConfig
from replicator.operations.check.log_facts import TopicFacts
from replicator.operations.check.result import CheckResult
from replicator.operations.check.source import check_partitions, check_source
from replicator.operations.check.source_facts import Grants, SourceFacts, TableFacts
from tests.support.config import minimal_config

VARIABLES = {
    "version": "9.7.0",
    "log_bin": "ON",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_transaction_compression": "OFF",
    "binlog_expire_logs_seconds": "2592000",
    "gtid_mode": "ON",
    "time_zone": "SYSTEM",
    "system_time_zone": "UTC",
}
ALL_NEEDED = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"


def configured(
    log: Mapping[str, object] | None = None,
    table: Sequence[Mapping[str, object]] = (),
    lake: Mapping[str, object] | None = None,
    verify: Mapping[str, object] | None = None,
    **source: Any,
) -> Config:
    return minimal_config(
        source={"url": "mysql://u@h/shop", "tables": ["shop.*"], **source},
        log={"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "shop", **(log or {})},
        lake=lake or {"catalog": "rest", "uri": "http://c", "namespace": "shop"},
        table=list(table),
        verify=verify or {},
    )


def granted(privileges: str) -> Grants:
    return Grants((f"GRANT {privileges} ON *.* TO `u`@`%`",))


def facts(
    variables: dict[str, str] | None = None,
    grants: Grants | None = None,
    tables: tuple[TableFacts, ...] = (TableFacts("shop", "orders"),),
    clock_ahead: float = 0.0,
    excluded: tuple[str, ...] = (),
    is_replica: bool = False,
) -> SourceFacts:
    known = VARIABLES | (variables or {})
    return SourceFacts("u@%", known, grants or granted(ALL_NEEDED), tables, clock_ahead, excluded, is_replica)


def trouble(what: SourceFacts, config: Config | None = None) -> dict[str, CheckResult]:
    """Return the results that are not ok, by name."""
    results = check_source(what, config or configured())
    assert all(bool(result.next_step) is (result.status != "ok") for result in results)
    return {result.name: result for result in results if result.status != "ok"}


@pytest.mark.parametrize(
    ("variable", "value", "name", "status", "step"),
    [
        ("version", "5.7.44", "source: version", "fail", "upgrade the server"),
        ("version", "8.0.13", "source: version", "fail", "upgrade the server"),
        ("version", "11.4.2-MariaDB", "source: version", "fail", "must be MySQL"),
        ("log_bin", "OFF", "source: log_bin", "fail", "--log-bin"),
        ("binlog_format", "MIXED", "source: binlog_format", "fail", "SET PERSIST binlog_format = 'ROW'"),
        (
            "binlog_row_image",
            "MINIMAL",
            "source: binlog_row_image",
            "fail",
            "SET PERSIST binlog_row_image = 'FULL'",
        ),
        (
            "binlog_row_value_options",
            "PARTIAL_JSON",
            "source: binlog_row_value_options",
            "fail",
            "SET PERSIST",
        ),
        ("binlog_row_metadata", "MINIMAL", "source: binlog_row_metadata", "warn", "SET PERSIST"),
        (
            "binlog_transaction_compression",
            "ON",
            "source: binlog_transaction_compression",
            "fail",
            "log.transactions",
        ),
        ("gtid_mode", "OFF", "source: gtid_mode", "warn", "enforce_gtid_consistency"),
        ("lower_case_table_names", "1", "source: lower_case_table_names", "warn", "as SHOW TABLES does"),
        ("lower_case_table_names", "2", "source: lower_case_table_names", "warn", "as SHOW TABLES does"),
        ("binlog_expire_logs_seconds", "3600", "source: binlog retention", "warn", "604800"),
        ("system_time_zone", "CST", "source: time zone", "warn", "+00:00"),
    ],
)
def test_check_source_reports_unsuitable_server_settings(
    variable: str, value: str, name: str, status: str, step: str
) -> None:
    found = trouble(facts({variable: value}))
    assert list(found) == [name]
    assert found[name].status == status
    assert step in found[name].next_step


@pytest.mark.parametrize(
    "variables",
    [
        {"binlog_format": "ROW"},
        {"lower_case_table_names": "0"},
        {"binlog_expire_logs_seconds": "0"},
        {"binlog_expire_logs_seconds": "60", "binlog_expire_logs_auto_purge": "OFF"},
        {"time_zone": "Europe/Berlin", "system_time_zone": "CET"},
        {"time_zone": "+02:00", "system_time_zone": "CET"},
    ],
)
def test_check_source_passes_when_server_settings_are_suitable(variables: dict[str, str]) -> None:
    assert trouble(facts(variables)) == {}


def test_check_source_accepts_compressed_transactions_only_if_their_events_are_numbered() -> None:
    name, compressing = (
        "source: binlog_transaction_compression",
        facts({"binlog_transaction_compression": "ON"}),
    )
    assert trouble(compressing, configured({"transactions": True})) == {}
    flattened = trouble(compressing, configured({"transactions": True, "flattened": True}))[name]
    assert (flattened.status, "no numbers" in flattened.next_step) == ("fail", True)
    archive = minimal_config(
        source={"url": "mysql://u@h/shop", "tables": ["shop.*"]}, log={"kind": "archive", "path": "/archive"}
    )
    assert trouble(compressing, archive)[name].status == "warn"


def test_check_source_reports_a_clock_difference() -> None:
    assert trouble(facts(clock_ahead=-7.25))["source: clock"].found == "-7.2 s relative to this machine"


@pytest.mark.parametrize(
    ("privilege", "status"),
    [
        ("REPLICATION SLAVE", "fail"),
        ("REPLICATION CLIENT", "fail"),
        ("RELOAD", "fail"),
        ("SHOW DATABASES", "warn"),
        ("LOCK TABLES", "warn"),
    ],
)
def test_check_source_names_the_grant_when_a_privilege_is_missing(privilege: str, status: str) -> None:
    rest = ", ".join(name for name in ALL_NEEDED.split(", ") if name != privilege)
    found = trouble(facts(grants=granted(rest)))
    assert list(found) == [f"source: {privilege}"]
    result = found[f"source: {privilege}"]
    assert (result.status, result.found) == (status, "missing")
    assert result.next_step == f"GRANT {privilege} ON *.* TO 'u'@'%'"


def test_check_source_requires_select_only_on_included_tables() -> None:
    tables = (TableFacts("shop", "a"), TableFacts("shop", "b", is_readable=False))
    assert trouble(facts(tables=tables[:1])) == {}
    found = trouble(facts(tables=tables))["source: SELECT"]
    assert (found.status, found.found) == ("fail", "missing on shop.b")
    assert found.next_step == "GRANT SELECT ON `shop`.* TO 'u'@'%'"


def test_check_source_fails_when_no_table_matches_a_pattern() -> None:
    assert trouble(facts(tables=()))["source: tables"].status == "fail"
    config = configured(tables=["shop.*", "shop.gone", "crm.*", "shop.[o]rders"])
    found = trouble(facts(), config)["source: tables"]
    missing = 'source.tables "shop.gone", source.tables "crm.*", source.tables "shop.[o]rders"'
    assert (found.status, found.found) == ("fail", f"no table matches {missing}")
    config = configured(exclude=["shop.*"])
    assert trouble(facts(tables=(), excluded=("shop.orders",)), config)["source: tables"].status == "fail"


def test_check_source_reports_exclude_patterns_and_table_sections_that_match_no_table() -> None:
    config = configured(
        exclude=["shop.tmp_*", "shop.card[1]", "shop.log"],
        table=[{"name": "shop.orders"}, {"name": "shop.order"}],
        verify={"exclude": ["shop.orders", "shop.audit"]},
    )
    found = trouble(facts(excluded=("shop.tmp_1", "shop.log", "shop.card1")), config)
    assert [(name, result.status) for name, result in found.items()] == [("source: patterns", "fail")]
    unmatched = 'source.exclude "shop.card[1]", verify.exclude "shop.audit", [[table]] "shop.order"'
    assert found["source: patterns"].found == f"no table matches {unmatched}"


def test_check_source_warns_of_tables_without_a_primary_key() -> None:
    tables = (
        TableFacts("shop", "log", has_primary_key=False),
        TableFacts("shop", "keyed_by_hand", has_primary_key=False),
    )
    keyed = configured(table=[{"name": "shop.keyed_by_hand", "key": ["a"]}])
    found = trouble(facts(tables=tables), keyed)["source: primary keys"]
    assert (found.status, found.found) == ("warn", "none on shop.log")
    config = keyed.model_copy(update={"apply": ApplyConfig(keyless="pause")})
    found = trouble(facts(tables=tables), config)["source: primary keys"]
    assert (found.status, found.found) == ("fail", "none on shop.log")


def test_check_source_refuses_histories_without_a_key_and_warns_without_gtids() -> None:
    tables = (TableFacts("shop", "log", has_primary_key=False), TableFacts("shop", "orders"))
    config = configured(table=[{"name": "shop.log", "history": "scd2"}], log={"connect_url": "http://c"})
    found = trouble(facts(tables=tables), config)["source: histories"]
    assert (found.status, "no primary key on shop.log" in found.found) == ("fail", True)
    config = configured(table=[{"name": "shop.orders", "history": "scd2"}], log={"connect_url": "http://c"})
    assert "source: histories" not in trouble(facts(tables=tables), config)
    found = trouble(facts({"gtid_mode": "OFF"}, tables=tables), config)["source: histories"]
    assert (found.status, "one transaction" in found.found) == ("warn", True)


JDBC = {"catalog": "jdbc", "warehouse": "lake", "namespace": "shop"}


@pytest.mark.parametrize(
    ("names", "lake", "status"),
    [
        (("orders", "orders"), None, "fail"),
        (("Orders", "orders"), None, "warn"),
        (("Orders", "orders"), JDBC | {"uri": "jdbc:sqlite:c.db"}, "warn"),
        (("Orders", "orders"), JDBC | {"uri": "jdbc:mysql://c/catalog"}, "fail"),
        (("Orders", "orders"), {"catalog": "glue", "warehouse": "lake", "namespace": "shop"}, "fail"),
        (("orders", "order"), None, None),
    ],
)
def test_check_source_reports_table_names_that_the_lake_may_not_distinguish(
    names: tuple[str, str], lake: dict[str, str] | None, status: str | None
) -> None:
    config = configured(tables=["*.*"], lake=lake)
    found = trouble(facts(tables=(TableFacts("shop", names[0]), TableFacts("crm", names[1]))), config)
    result = found.get("source: table names")
    assert (result and result.status) == status
    assert result is None or result.found.startswith(f"shop.{names[0]} and crm.{names[1]} ")


KEYLESS = (
    TableFacts("shop", "log", has_primary_key=False),
    TableFacts("shop", "a b", has_primary_key=False),
    TableFacts("shop", "orders"),
)
ONE, THREE = TopicFacts("shop.shop.log", 1), TopicFacts("shop.shop.a_b", 3)


@pytest.mark.parametrize(
    ("partitions", "topics", "names"),
    [
        (1, (), ""),
        (3, (), "shop.log, shop.a b"),
        (3, (ONE,), "shop.a b"),
        (1, (ONE, THREE), "shop.a b"),
        (1, (TopicFacts("shop.shop.orders", 3),), ""),
    ],
)
def test_check_partitions_fails_when_a_keyless_table_has_several_partitions(
    partitions: int, topics: tuple[TopicFacts, ...], names: str
) -> None:
    config = configured(log={"partitions": partitions})
    found = list(check_partitions(facts(tables=KEYLESS), topics, config))
    assert [(r.name, r.status) for r in found] == ([("source: keyless tables", "fail")] if names else [])
    assert all(names in r.found and "replicator connect" in r.next_step for r in found)


def test_check_source_reports_wide_decimals_and_cascading_foreign_keys() -> None:
    tables = (TableFacts("shop", "orders", wide_decimals=("big",), cascades=("fk",)),)
    found = trouble(facts({"version": "9.5.0"}, tables=tables))
    assert found["source: decimals"].found == "more than 38 digits: shop.orders.big"
    assert found["source: foreign keys"].status == "warn"
    assert "source: foreign keys" not in trouble(facts({"version": "9.6.0"}, tables=tables))
    native = {"version": "9.7.0", "innodb_native_foreign_keys": "ON"}
    assert (
        "innodb_native_foreign_keys = OFF"
        in trouble(facts(native, tables=tables))["source: foreign keys"].next_step
    )


def test_check_source_tells_that_children_of_changed_parents_are_read_again() -> None:
    config = configured(cascades="reread", log={"connect_url": "http://connect:8083"})
    found = check_source(
        facts({"version": "8.0.33"}, tables=(TableFacts("shop", "items", cascades=("fk",)),)), config
    )
    (result,) = [r for r in found if r.name == "source: foreign keys"]
    assert (result.status, result.found) == (
        "ok",
        "rows of shop.items change by cascade; then [heal] decides when these tables are read again",
    )


def test_check_source_names_columns_whose_text_the_connector_decodes_wrongly() -> None:
    found = trouble(facts(tables=(TableFacts("shop", "orders", garbled=("note", "name")),)))
    assert found["source: character sets"].status == "warn"
    assert "shop.orders.note, shop.orders.name" in found["source: character sets"].found


APICURIO = {"format": "avro", "registry_url": "http://r/apis/ccompat/v7"}


@pytest.mark.parametrize(
    ("log", "status"),
    [
        ({}, None),
        ({"format": "avro", "registry_url": "http://r"}, None),
        (APICURIO, "fail"),
        (APICURIO | {"allow_lossy": ["value.converter"]}, "warn"),
    ],
)
def test_check_source_reports_nulls_that_a_converter_loses(
    log: dict[str, object], status: str | None
) -> None:
    tables = (TableFacts("shop", "orders", defaulted=("state",)),)
    found = trouble(facts(tables=tables), configured(log=log)).get("source: nullable columns with defaults")
    assert (found and found.status) == status
    assert found is None or "shop.orders.state" in found.found


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({"log_replica_updates": "ON"}, "ok"),
        ({"log_replica_updates": "OFF"}, "fail"),
        ({"log_slave_updates": "OFF"}, "fail"),
    ],
)
def test_replica_must_log_what_it_replicates(variables: dict[str, str], status: str) -> None:
    name = "source: log_replica_updates"
    results = {r.name: r.status for r in check_source(facts(variables, is_replica=True), configured())}
    assert results[name] == status
    assert name not in {r.name for r in check_source(facts(variables), configured())}
