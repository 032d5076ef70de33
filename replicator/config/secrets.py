"""Secrets: the configuration names their location, and they are read only when needed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import PlainValidator, SecretStr, ValidationInfo, model_validator

from replicator.config.paths import LocalPath
from replicator.config.values import Section
from replicator.errors import ConfigError


class SecretRef(Section):
    """`{ env = "NAME" }` or `{ file = "PATH" }`."""

    env: str | None = None
    file: LocalPath | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError('give either { env = "NAME" } or { file = "PATH" }')
        return self

    def reveal(self) -> SecretStr:
        """Read the secret. Raises ConfigError if the variable is unset or the file is unreadable."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if value is None:
                raise ConfigError(
                    f"the environment variable {self.env} is not set, but the configuration reads a secret from it",
                    f"export {self.env}=… before this command",
                )
            return SecretStr(value)
        path = self.file or Path()
        try:
            # Editors and `echo` end a file with a line break that is not part of the secret.
            return SecretStr(path.read_text(encoding="utf-8").rstrip("\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read the secret in {path}: {_reason(error)}",
                "the file must be readable by the user that runs this command and contain only the secret",
            ) from error


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "not UTF-8 text"


def _secret(value: object, info: ValidationInfo) -> SecretRef:
    if isinstance(value, SecretRef):
        return value
    if not isinstance(value, Mapping):
        # The value is never included: this message may end up in a log.
        raise ValueError(
            'secrets must not be written in this file; write { env = "NAME" } for an environment variable, '
            'or { file = "PATH" }'
        )
    return SecretRef.model_validate(value, context=info.context)


Secret = Annotated[SecretRef, PlainValidator(_secret)]

_SECRET_WORDS = (
    "password",
    "secret",
    "token",
    "jaas",
    "credential",
    "access-key",
    "access_key",
    "ssl.key.pem",
)


def _option(value: object, info: ValidationInfo) -> "str | SecretRef":
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, SecretRef):
        return value
    if isinstance(value, Mapping):
        return SecretRef.model_validate(value, context=info.context)
    raise ValueError('must be a string, a number, true or false, or { env = "NAME" } for a secret')


OptionValue = Annotated[str | SecretRef, PlainValidator(_option)]


def refuse_literal_secrets(options: Mapping[str, str | SecretRef]) -> None:
    """Raise ValueError if an option whose name suggests a secret has a plain-text value."""
    for name, value in options.items():
        if isinstance(value, str) and any(word in name.lower() for word in _SECRET_WORDS):
            raise ValueError(
                f'"{name}" is a secret and must not be written in this file; write {{ env = "NAME" }}'
            )


def reveal_all(options: Mapping[str, str | SecretRef]) -> dict[str, str]:
    """Return the options with every secret read. Pass the result to clients only: never log it."""
    return {
        name: value if isinstance(value, str) else value.reveal().get_secret_value()
        for name, value in options.items()
    }
