"""Debezium's connector in Kafka Connect: its settings, its state, and what to do if it fails."""
