"""A broker inside Kafka's client library. It knows no topic ids and no settings of topics."""

from confluent_kafka import Producer


class MockBroker:
    """Topics with four partitions each, which exist once something was sent to them."""

    def __init__(self) -> None:
        settings = {"bootstrap.servers": "the client replaces it", "test.mock.num.brokers": 1, "log_level": 0}
        self._producer = Producer(settings)
        [broker] = self._producer.list_topics(timeout=10).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def send(self, topic: str, *values: bytes | None, partition: int = 0) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(10) == 0
