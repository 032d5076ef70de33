"""Options of the consumers."""

from confluent_kafka import Consumer

from replicator.sources.kafka.messages import READ_AHEAD, reading_ahead


def test_options_of_the_user_precede_those_that_read_ahead() -> None:
    assert reading_ahead({"fetch.queue.backoff.ms": 7}) == {**READ_AHEAD, "fetch.queue.backoff.ms": 7}


def test_client_with_large_messages_fetches_as_much() -> None:
    options = reading_ahead({"message.max.bytes": 50_000_000, "bootstrap.servers": "", "group.id": "a test"})
    Consumer(options).close()
