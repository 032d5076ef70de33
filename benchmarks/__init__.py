"""Benchmarks of the mirror, compared with Flink with Iceberg: `python -m benchmarks --help`."""
