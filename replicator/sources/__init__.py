"""Read the systems outside the lake: Kafka, event archives, MySQL, schema registries."""
