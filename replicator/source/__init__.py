"""Where change events come from: Kafka topics or an event archive. Both give the same raw records."""
