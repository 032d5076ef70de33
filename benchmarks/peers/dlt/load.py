"""Load one table of MySQL into Parquet files with dlt, by its fastest backend, connectorx.

Arguments: a file with the URL of the database (user and password included), the table, and the folder for the result.
This runs in an environment of its own (`environment.py`), so nothing of this project can be imported.
"""

import sys
from pathlib import Path

import dlt
from dlt.sources.sql_database import sql_table


def main(url_file: str, name: str, folder: str) -> None:
    """Load the table."""
    url = Path(url_file).read_text()
    table = sql_table(
        url.replace("mysql:", "mysql+pymysql:"),
        name,
        backend="connectorx",
        backend_kwargs={"return_type": "arrow", "conn": url},
    )
    pipeline = dlt.pipeline(
        "load",
        pipelines_dir=f"{folder}/state",
        destination=dlt.destinations.filesystem(f"file://{folder}/lake"),
        dataset_name="loaded",
    )
    pipeline.run(table, loader_file_format="parquet", write_disposition="replace")


main(*sys.argv[1:])
