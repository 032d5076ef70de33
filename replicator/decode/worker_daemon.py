"""The process that forks Spark's Python workers: it imports once what all of them need."""

from pyspark.daemon import manager

import replicator.decode.avro.events
import replicator.decode.decoder
import replicator.decode.json.parser  # noqa: F401

if __name__ == "__main__":
    manager()
