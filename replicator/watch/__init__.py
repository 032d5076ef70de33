"""Notice what the events do not show: in the source's binlog, its definitions and rows, and in the connector."""
