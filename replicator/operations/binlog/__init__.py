"""Import binary log files into an event archive.

A MySQL server of its own serves the files to Debezium, which writes its events to a Kafka broker of its own, and those
are recorded. So the archive has what Debezium would have written when the files were new.
"""

from replicator.operations.binlog.importing import Imported, ImportRequest, import_binlog

__all__ = ["ImportRequest", "Imported", "import_binlog"]
