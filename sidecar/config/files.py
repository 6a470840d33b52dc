"""The files that a configuration names: secrets and certificates, tried before anything starts.

A missing certificate should stop a start or a reload, not the first call an hour later.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from sidecar.config.addresses import AddressError

_MOST_OF_A_SECRET = 64 * 1024
_TOKEN = re.compile(r"[\x21-\x7e]+")


class FileError(AddressError):
    """A named file that cannot be used, and why; its contents are never quoted."""


def read_secret(path: str) -> str:
    """The text of a small file without one line break at its end.

    Raises:
        FileError: if it cannot be read, is empty, too large, or holds more than one line of text.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_OF_A_SECRET + 1)
    except (OSError, ValueError) as error:
        raise FileError(f"the file cannot be read: {_reason(error)}") from None
    if len(content) > _MOST_OF_A_SECRET:
        raise FileError("the file is too large for a secret")
    text = content.decode("latin-1").removesuffix("\n").removesuffix("\r")
    check_header_value(text, "the file")
    return text


def check_header_value(text: str, what: str) -> None:
    """Refuse what cannot stand in a header.

    Raises:
        FileError: if it is empty or has line breaks, NULs or characters beyond latin-1.
    """
    if not text.strip():
        raise FileError(f"{what} is empty")
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]", text):
        raise FileError(f"{what} holds line breaks or other characters that no header can carry")


def read_token(path: str) -> str:
    """The token in a file.

    Raises:
        FileError: if it cannot be read or is no single word of visible ASCII.
    """
    token = read_secret(path)
    if not _TOKEN.fullmatch(token):
        raise FileError("a token is one word of visible ASCII characters")
    return token


def check_certificate(cert: str, key: str | None) -> None:
    """Try to load a certificate chain and its key.

    Raises:
        FileError: if one cannot be read or parsed, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise FileError(f"certificate and key cannot be used: {_reason(error)}") from None


def check_ca(path: str) -> None:
    """Try to load a bundle of trusted certificates.

    Raises:
        FileError: if it cannot be read or holds none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:
        raise FileError(f"the bundle cannot be used: {_reason(error)}") from None


def _no_passphrase() -> str:
    """Keeps OpenSSL from asking on the terminal."""
    raise ValueError("the key has a passphrase, and nobody is there to type it")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no valid PEM").lower().replace("_", " ")
    if isinstance(error, OSError):
        return (error.strerror or "it is no readable file").lower()
    return str(error)
