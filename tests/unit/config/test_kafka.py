"""The options of Kafka clients and of the schema registry in the section [log]."""

from pathlib import Path

import pytest

from replicator.config import KafkaLog
from tests.support.config_files import GOOD, load_text, mistakes_in

URL = 'registry_url = "http://127.0.0.1:8081"\n'


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ('format = "avro"\n', 'registry_url is required with format = "avro"'),
        (
            f'format = "avro"\nschemas = true\n{URL}',
            'schemas has no effect with format = "avro"; remove it',
        ),
        (URL, 'registry_url has no effect with format = "json" and without log tables in Avro; remove it'),
        (
            f'format = "avro"\n{URL}registry_user = "me"\n',
            "registry_user and registry_password must be set together",
        ),
        (
            'registry_user = "me"\nregistry_password = { env = "P" }\n',
            'registry_user has no effect with format = "json"; remove it',
        ),
        (
            'format = "avro"\nregistry_url = "http://me:secret@127.0.0.1"\n',
            "contains a login; remove it and set registry_user and registry_password = { env = … }",
        ),
    ],
)
def test_load_reports_mistakes_in_registry_settings_without_secrets(
    file: Path, log: str, expected: str
) -> None:
    (found,) = mistakes_in(file, GOOD.replace('topic_prefix = "shop"\n', f'topic_prefix = "shop"\n{log}'))
    assert found.endswith(expected)
    assert "secret" not in found


def test_registry_login_is_read_from_user_and_password(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P", "sesame")
    log = f'format = "avro"\n{URL}'
    login = 'registry_user = "me"\nregistry_password = { env = "P" }\n'
    for lines, wanted in ((log, None), (log + login, ("me", "sesame"))):
        config = load_text(file, GOOD.replace('topic_prefix = "shop"\n', f'topic_prefix = "shop"\n{lines}'))
        assert isinstance(config.log, KafkaLog)
        assert config.log.registry_login() == wanted
        assert "sesame" not in repr(config)


def test_kafka_options_are_translated_for_both_clients(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", 'a"b')
    config = load_text(
        file,
        GOOD
        + """
[log.options]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "replicator"
"sasl.password" = { env = "KAFKA_PASSWORD" }
"ssl.ca.location" = "/etc/ca.pem"
"socket.timeout.ms" = 5000
""",
    )
    assert isinstance(config.log, KafkaLog)
    assert config.log.client_options() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "replicator",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/etc/ca.pem",
        "socket.timeout.ms": "5000",
    }
    spark = config.log.spark_options()
    assert spark["kafka.bootstrap.servers"] == "127.0.0.1:9092"
    assert spark["kafka.ssl.truststore.location"] == "/etc/ca.pem"
    assert spark["kafka.ssl.truststore.type"] == "PEM"
    assert spark["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="replicator" password="a\\"b";'
    )
    assert "kafka.sasl.password" not in spark


@pytest.mark.parametrize(
    ("archive", "location"), [("past", "{folder}/past"), ("s3://backups/shop", "s3://backups/shop")]
)
def test_archive_of_the_log_is_a_folder_beside_the_file_or_a_url(
    file: Path, archive: str, location: str
) -> None:
    text = GOOD.replace('topic_prefix = "shop"\n', f'topic_prefix = "shop"\narchive = "{archive}"\n')
    log = load_text(file, text).log
    assert isinstance(log, KafkaLog)
    assert log.archive == location.format(folder=file.parent)
