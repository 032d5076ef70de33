"""Mirror MySQL databases into Apache Iceberg tables from Debezium change events."""

__version__ = "0.1.0"
