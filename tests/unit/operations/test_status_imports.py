"""What `status` and `pipeline list` load: they answer at once, so they load no library that they do not need.

PyIceberg, PyArrow, NumPy and SQLAlchemy together take more than a second of CPU time.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.marked_lake import marker, write

CONFIG = """
[mirror]
name = "shop"
[source]
url = "mysql://cdc@127.0.0.1:9/shop"
tables = ["shop.*"]
[log]
LOG
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"
"""
LOGS = {
    "archive": 'kind = "archive"\npath = "recorded"',
    "kafka": 'kind = "kafka"\nbootstrap_servers = "127.0.0.1:9"\ntopic_prefix = "p"\n'
    'connect_url = "http://127.0.0.1:9"',
}
ROWS = ("duckdb", "numpy", "pandas", "pyarrow", "pyiceberg.catalog", "pyiceberg.table", "pyspark")
SERVERS = ("confluent_kafka", "pymysql", "requests", "sqlalchemy")
PROGRAM = """
import sys
from replicator.cli.main import main
for command in (["status", "--maintenance", "--checks"], ["pipeline", "list"]):
    try:
        main([*command, "-c", sys.argv[1]])
    except SystemExit as end:
        assert not end.code, end.code
print("loaded:", *sys.modules)
"""


@pytest.mark.parametrize(("log", "unwanted"), [("archive", ROWS + SERVERS), ("kafka", (*ROWS, "sqlalchemy"))])
def test_status_and_pipeline_list_load_no_large_library(
    tmp_path: Path, lake: SqlCatalog, log: str, unwanted: tuple[str, ...]
) -> None:
    for namespace in ("shop", "shop_changes"):
        write(lake, (namespace, "orders"), {"id": [1, 2]}, marker(10))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "a.sql").write_text("SELECT id FROM shop.orders")
    (tmp_path / "shop.toml").write_text(CONFIG.replace("LOG", LOGS[log]))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "shop.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report, _, loaded = done.stdout.partition("loaded:")
    assert "shop.orders" in report
    assert "shop_pipelines.a" in report
    assert set(unwanted) & set(loaded.split()) == set()
