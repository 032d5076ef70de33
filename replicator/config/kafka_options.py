"""Translate Kafka client settings from librdkafka's names to those of the Java client inside Spark."""

from collections.abc import Mapping

_SASL_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_TRANSLATED = ("sasl.username", "sasl.password", "sasl.mechanisms", "ssl.ca.location")


def java_client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the Java client's settings for librdkafka's `options`; names that both clients share are kept."""
    java = {name: value for name, value in options.items() if name not in _TRANSLATED}
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    if mechanism is not None:
        java["sasl.mechanism"] = mechanism
    if "sasl.username" in options and mechanism in _SASL_MODULES:
        user, password = _quoted(options["sasl.username"]), _quoted(options.get("sasl.password", ""))
        java["sasl.jaas.config"] = f"{_SASL_MODULES[mechanism]} required username={user} password={password};"
    if "ssl.ca.location" in options:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.location"] = options["ssl.ca.location"]
    return java


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
