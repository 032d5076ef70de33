"""Define the section `[log]`: where the events come from."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from replicator.config.kafka_options import java_client_options
from replicator.config.paths import Location
from replicator.config.secrets import OptionValue, Secret, SecretRef, refuse_literal_secrets, reveal_all
from replicator.config.values import NAME, STRICT

APICURIO_API: Final = "/apis/ccompat/"
"""Part of the URL of Apicurio's Confluent-compatible API."""


class KafkaLog(BaseModel):
    """`[log] kind = "kafka"`: Debezium's topics.

    `options` are librdkafka's names (`security.protocol`, `sasl.username`, …), given once for both clients: the
    Spark side receives their Java counterparts. `connect` uses `schemas`, `partitions`, `transactions` and
    `connect_url`. With `transactions`, events without numbers may be ones of compressed transactions. `allow_lossy`
    names options of the connector that may lose data. `registry_url` is a schema registry's Confluent-compatible API,
    for `format = "avro"`. With `flattened`, events are rows from ExtractNewRecordState instead of envelopes. `archive`
    is a recorded archive of the same topics: events that Kafka has deleted are read from it.
    """

    model_config = STRICT

    kind: Literal["kafka"]
    bootstrap_servers: Annotated[str, Field(min_length=1)]
    topic_prefix: Annotated[str, Field(pattern=NAME)]
    format: Literal["json", "avro"] = "json"
    registry_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    registry_user: Annotated[str, Field(min_length=1)] | None = None
    registry_password: Secret | None = None
    flattened: bool = False
    schemas: bool = False
    partitions: Annotated[int, Field(ge=1)] = 1
    transactions: bool = False
    # It may have a login.
    connect_url: Annotated[str, Field(pattern=r"^https?://")] | None = Field(default=None, repr=False)
    archive: Location | None = None
    allow_lossy: tuple[str, ...] = ()
    options: dict[str, OptionValue] = {}

    @field_validator("options")
    @classmethod
    def _known_places(cls, options: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        refuse_literal_secrets(options)
        if "bootstrap.servers" in options:
            raise ValueError('"bootstrap.servers" has its own key: log.bootstrap_servers')
        return options

    @field_validator("registry_url")
    @classmethod
    def _no_login(cls, url: str | None) -> str | None:
        if url is not None and "@" in url.split("/")[2]:
            raise ValueError(
                "contains a login; remove it and set registry_user and registry_password = { env = … }"
            )
        return url

    @model_validator(mode="after")
    def _registry_fits(self) -> Self:
        if self.format == "avro" and self.registry_url is None:
            raise ValueError('registry_url is required with format = "avro"')
        if self.format == "avro" and self.schemas:
            raise ValueError('schemas has no effect with format = "avro"; remove it')
        if self.format == "json" and self.registry_url is not None:
            raise ValueError('registry_url has no effect with format = "json"; remove it')
        if (self.registry_user is None) != (self.registry_password is None):
            raise ValueError("registry_user and registry_password must be set together")
        if self.registry_user is not None and self.registry_url is None:
            raise ValueError('registry_user has no effect with format = "json"; remove it')
        return self

    @property
    def registry_is_apicurio(self) -> bool:
        """Whether the registry is Apicurio's, judged by its URL; `connect` then configures Apicurio's converter."""
        return APICURIO_API in (self.registry_url or "")

    @property
    def nulls_are_lost(self) -> bool:
        """Whether the converter writes the default of a nullable column in place of NULL.

        Apicurio's converter always does; `connect` configures the others not to. `allow_lossy` permits it by the name
        of the setting that selects the converter.
        """
        return self.format == "avro" and self.registry_is_apicurio

    @property
    def defaults_are_accepted(self) -> bool:
        """Whether `allow_lossy` permits defaults in place of NULL."""
        return "value.converter" in self.allow_lossy

    def registry_login(self) -> tuple[str, str] | None:
        """Return the user and password of the registry: never log them. Raises ConfigError if the secret is missing."""
        if self.registry_user is None or self.registry_password is None:
            return None
        return self.registry_user, self.registry_password.reveal().get_secret_value()

    def client_options(self) -> dict[str, Any]:
        """Return the settings for a confluent-kafka client, secrets included: never log them."""
        return {"bootstrap.servers": self.bootstrap_servers, **reveal_all(self.options)}

    def spark_options(self) -> dict[str, str]:
        """Return the same settings for Spark's Kafka source, each prefixed with `kafka.`; secrets included."""
        return {f"kafka.{name}": value for name, value in java_client_options(self.client_options()).items()}


class ArchiveLog(BaseModel):
    """`[log] kind = "archive"`: a recorded event archive. `topic_prefix` defaults to the manifest's."""

    model_config = STRICT

    kind: Literal["archive"]
    path: Location
    topic_prefix: Annotated[str, Field(pattern=NAME)] | None = None
    flattened: bool = False
