"""dlt, which loads tables of MySQL into Parquet files; for comparison."""
