"""`replicator check` on a real MySQL server."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pymysql
import pytest

from replicator.cli import main
from replicator.config import Config, parse
from replicator.errors import SourceUnavailable
from replicator.operations.check import run_checks
from replicator.operations.check.result import CheckResult
from replicator.sources.mysql.connection import connect

pytestmark = pytest.mark.stack

DATABASE = "check_shop"
USER = "check_user"
PASSWORD = "check-password"
NEEDED = ("SELECT", "RELOAD", "SHOW DATABASES", "REPLICATION SLAVE", "REPLICATION CLIENT", "LOCK TABLES")
Sql = Callable[..., None]


@pytest.fixture
def sql(running_stack: Any) -> Iterator[Sql]:
    """Provide a function that runs statements as root. Their effects are removed afterwards."""
    there = running_stack.endpoints
    root = pymysql.connect(
        host=there.mysql_host,
        port=there.mysql_port,
        user="root",
        password=there.mysql_root_password,
        autocommit=True,
    )

    def run(*statements: str) -> None:
        with root.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def clean() -> None:
        run(
            f"DROP DATABASE IF EXISTS {DATABASE}",
            f"DROP USER IF EXISTS {USER}",
            "DROP ROLE IF EXISTS check_role",
            "SET GLOBAL binlog_row_image = 'FULL'",
        )

    clean()
    run(
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {DATABASE}.orders (id INT PRIMARY KEY, total DECIMAL(10, 2))",
        f"CREATE TABLE {DATABASE}.items (id INT PRIMARY KEY, order_id INT)",
        f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'",
    )
    yield run
    clean()
    root.close()


@pytest.fixture
def values(running_stack: Any, tmp_path: Path) -> dict[str, Any]:
    """Return a configuration that reads an archive, so that only checks of the source can fail."""
    from replicator.sources.archive.writer import ArchiveWriter

    ArchiveWriter(tmp_path / "recorded", topic_prefix="shop", encoding="json").close()
    (tmp_path / "password").write_text(PASSWORD)
    there = running_stack.endpoints
    return {
        "mirror": {"name": "shop"},
        "source": {
            "url": f"mysql://{USER}@{there.mysql_host}:{there.mysql_port}/{DATABASE}",
            "password": {"file": "password"},
            "tables": [f"{DATABASE}.*"],
        },
        "log": {"kind": "archive", "path": "recorded", "topic_prefix": "shop"},
        "lake": {
            "catalog": "jdbc",
            "uri": "jdbc:sqlite:lake/catalog.db",
            "warehouse": "lake",
            "namespace": "shop",
        },
    }


def configured(values: Mapping[str, Any], folder: Path, **source: Any) -> Config:
    return parse({**values, "source": {**values["source"], **source}}, base=folder)


def trouble(config: Config) -> dict[str, CheckResult]:
    """Return the findings about the source that are not ok, by name."""
    results = run_checks(config)
    return {r.name: r for r in results if r.status != "ok" and r.name.startswith("source")}


def grant(*privileges: str) -> str:
    return f"GRANT {', '.join(privileges)} ON *.* TO {USER}"


def test_check_passes_when_all_privileges_are_granted(
    sql: Sql, values: dict[str, Any], tmp_path: Path
) -> None:
    sql(grant(*NEEDED))
    config = configured(values, tmp_path)
    assert set(trouble(config)) <= {"source: time zone"}
    found = {result.name: result.found for result in run_checks(config)}
    assert found["source: tables"] == f"2: {DATABASE}.items, {DATABASE}.orders"
    assert found["source: SELECT"] == "granted on 2 tables"


def test_check_accepts_privileges_granted_through_a_role(
    sql: Sql, values: dict[str, Any], tmp_path: Path
) -> None:
    sql(
        "CREATE ROLE check_role",
        grant(*NEEDED).replace(USER, "check_role"),
        f"GRANT check_role TO {USER}",
        f"SET DEFAULT ROLE check_role TO {USER}",
    )
    assert set(trouble(configured(values, tmp_path))) <= {"source: time zone"}


@pytest.mark.parametrize("missing", ["REPLICATION SLAVE", "REPLICATION CLIENT", "RELOAD", "LOCK TABLES"])
@pytest.mark.every_case
def test_grant_proposed_by_check_fixes_the_finding(
    sql: Sql, values: dict[str, Any], tmp_path: Path, missing: str
) -> None:
    sql(grant(*(name for name in NEEDED if name != missing)))
    config = configured(values, tmp_path)
    result = trouble(config)[f"source: {missing}"]
    assert result.status == ("warn" if missing == "LOCK TABLES" else "fail")
    sql(result.next_step)
    assert f"source: {missing}" not in trouble(config)


def test_check_fails_when_the_user_may_not_read_a_table(
    sql: Sql, values: dict[str, Any], tmp_path: Path
) -> None:
    sql(grant(*NEEDED[1:-1]), f"GRANT SELECT ON {DATABASE}.orders TO {USER}")
    names = [f"{DATABASE}.orders", f"{DATABASE}.items"]
    result = trouble(configured(values, tmp_path, tables=names))["source: tables"]
    assert (result.status, result.found) == ("fail", f'no table matches source.tables "{DATABASE}.items"')


def test_check_fails_when_the_row_image_is_minimal(sql: Sql, values: dict[str, Any], tmp_path: Path) -> None:
    sql(grant(*NEEDED), "SET GLOBAL binlog_row_image = 'MINIMAL'")
    result = trouble(configured(values, tmp_path))["source: binlog_row_image"]
    assert (result.status, result.found) == ("fail", "MINIMAL")
    sql(result.next_step.partition("  (")[0], "RESET PERSIST binlog_row_image")
    assert "source: binlog_row_image" not in trouble(configured(values, tmp_path))


def test_check_names_tables_without_key_or_with_wide_decimals(
    sql: Sql, values: dict[str, Any], tmp_path: Path
) -> None:
    sql(
        grant(*NEEDED),
        f"CREATE TABLE {DATABASE}.keyless (a INT)",
        f"CREATE TABLE {DATABASE}.nullable_key (a INT, UNIQUE (a))",
        f"CREATE TABLE {DATABASE}.unique_key (a INT NOT NULL, UNIQUE (a))",
        f"CREATE TABLE {DATABASE}.wide (id INT PRIMARY KEY, big DECIMAL(65, 0))",
        f"CREATE VIEW {DATABASE}.a_view AS SELECT 1 AS a",
    )
    found = trouble(configured(values, tmp_path))
    assert found["source: primary keys"].found == f"none on {DATABASE}.keyless, {DATABASE}.nullable_key"
    assert found["source: decimals"].found == f"more than 38 digits: {DATABASE}.wide.big"


def test_check_reports_a_refused_login_or_a_closed_port(
    sql: Sql, values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("wrong")
    refused = trouble(configured(values, tmp_path))["source: reachable"]
    assert f"refused the user {USER}" in refused.found
    closed = configured(values, tmp_path, url=f"mysql://{USER}@127.0.0.1:1/{DATABASE}")
    assert "cannot reach MySQL at 127.0.0.1:1" in trouble(closed)["source: reachable"].found
    with pytest.raises(SourceUnavailable), connect(closed.source):
        pytest.fail("connected to a closed port")


def test_check_command_exits_with_1_when_a_check_fails(
    sql: Sql, values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql(grant("SELECT"))
    file = tmp_path / "shop.toml"
    lines = [
        f"[{section}]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in keys.items())
        for section, keys in values.items()
    ]
    file.write_text("\n".join(lines))
    with pytest.raises(SystemExit) as ended:
        main(["check", "-c", str(file), "--json"])
    assert ended.value.code == 1
    report = json.loads(capsys.readouterr().out)
    assert {r["name"] for r in report["results"] if r["status"] == "fail"} == {
        "source: REPLICATION SLAVE",
        "source: REPLICATION CLIENT",
        "source: RELOAD",
    }


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)
