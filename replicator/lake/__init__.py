"""Iceberg: catalog, files, commits, schema updates, the ledger, quarantine, and a reader that needs no Spark.

Only this package writes to the lake. `table_metadata` and `sql` are pure; `data_files` writes files that no reader sees
yet; `commit` makes them visible together with the commit marker, in one atomic commit.
"""
