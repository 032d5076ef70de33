"""Make a DuckDB database with a view of Parquet files: `lake.py DATABASE VIEW`, the files on standard input."""

import sys

import duckdb

database, view = sys.argv[1:]
files = ", ".join("'" + line.strip().replace("'", "''") + "'" for line in sys.stdin)
with duckdb.connect(database) as connection:
    connection.execute(f'CREATE OR REPLACE VIEW "{view}" AS SELECT * FROM read_parquet([{files}])')
