"""Read Debezium's topics from Kafka, and what the schema registry says of their records."""
