"""Benchmarks of the mirror beside Flink with Iceberg: `python -m benchmarks --help`."""
