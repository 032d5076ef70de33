"""Change events in Avro, in Confluent's wire format."""
