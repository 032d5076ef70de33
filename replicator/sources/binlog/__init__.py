"""MySQL's binary log as files: what they contain, whether they are complete, and how to fetch them from a server.

Change events are not made from them here: Debezium does that, see `replicator.operations.binlog`.
"""
