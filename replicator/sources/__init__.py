"""Read the systems outside the lake: Kafka, the connector, event archives, MySQL and its binlog.

`change_log` is what the engine reads; Kafka's topics (`kafka`), an archive (`archive`) and both joined implement it.
"""
