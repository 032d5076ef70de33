"""Import binary log files into an event archive.

A MySQL server of its own serves the files to Debezium, which writes its events to a Kafka broker of its own, and those
are recorded. So the archive has what Debezium would have written when the files were new.
"""

from replicator.operations.binlog.importing import Imported, ImportPhase, Progress, import_binlog
from replicator.operations.binlog.request import ImportRequest

__all__ = ["ImportPhase", "ImportRequest", "Imported", "Progress", "import_binlog"]
