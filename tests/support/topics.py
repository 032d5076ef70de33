"""Read Kafka topics, for tests that inspect the log itself."""

from confluent_kafka import Consumer, Message, TopicPartition


def ends(bootstrap_servers: str, prefix: str) -> dict[str, int]:
    """Return topic → number of records ever written, of one connector's topics including the schema-change topic."""
    consumer = _consumer(bootstrap_servers)
    try:
        topics = consumer.list_topics(timeout=20).topics
        return {
            name: sum(
                consumer.get_watermark_offsets(TopicPartition(name, p), timeout=20)[1]
                for p in topic.partitions
            )
            for name, topic in topics.items()
            if name == prefix or name.startswith(f"{prefix}.")
        }
    finally:
        consumer.close()


def records(bootstrap_servers: str, topic: str) -> list[Message]:
    """Return all records of a topic with one partition."""
    consumer, found = _consumer(bootstrap_servers), list[Message]()
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not found or (found[-1].offset() or 0) + 1 < end:
            message = consumer.poll(20)
            assert message is not None, f"{topic} ended at {len(found)} of {end}"
            assert message.error() is None
            found.append(message)
    finally:
        consumer.close()
    return found


def _consumer(bootstrap_servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test", "enable.auto.commit": False})
