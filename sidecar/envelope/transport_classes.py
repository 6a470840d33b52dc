"""What the plain clients and the standard library raise when no answer came, class by class.

Dotted names, never patterns: `TimeoutError` of a pool, of a driver and of the standard library are
three things. A class is either sure, or vague: one that its library raises for several troubles,
which a number, a cause or the text tells apart.
"""

from __future__ import annotations

from collections.abc import Iterator


def _below(module: str, names: str) -> Iterator[str]:
    for name in names.split():
        yield f"{module}.{name}" if module else name


def _table(*rows: tuple[str, str, str]) -> dict[str, str]:
    return {name: word for word, module, names in rows for name in _below(module, names)}


def _httpx(module: str, core: str) -> dict[str, str]:
    return _table(
        ("connect_timeout", module, "ConnectTimeout"),
        ("read_timeout", module, "ReadTimeout"),
        ("timeout", module, "WriteTimeout"),
        ("pool_timeout", module, "PoolTimeout"),
        ("invalid_url", module, "UnsupportedProtocol InvalidURL"),
        ("too_many_redirects", module, "TooManyRedirects"),
        ("invalid_upstream_response", module, "DecodingError"),
        ("refused_locally", module, "LocalProtocolError"),
        ("connect_timeout", core, "ConnectTimeout"),
        ("read_timeout", core, "ReadTimeout"),
        ("timeout", core, "WriteTimeout"),
        ("pool_timeout", core, "PoolTimeout"),
        ("invalid_url", core, "UnsupportedProtocol"),
        ("refused_locally", core, "LocalProtocolError"),
    )


def _httpx_vague(module: str, core: str) -> dict[str, str]:
    return _table(
        ("connection_reset", module, "ReadError WriteError CloseError RemoteProtocolError"),
        ("connection_error", module, "ConnectError ProxyError NetworkError TransportError"),
        ("timeout", module, "TimeoutException"),
        ("connection_reset", core, "ReadError WriteError RemoteProtocolError ProtocolError"),
        ("connection_error", core, "ConnectError ProxyError NetworkError ConnectionNotAvailable"),
        ("timeout", core, "TimeoutException"),
    )


#: Classes that mean one thing, to the word for it.
SURE: dict[str, str] = {
    **_httpx("httpx", "httpcore"),
    **_httpx("httpx2", "httpcore2"),
    **_table(
        ("connection_refused", "", "ConnectionRefusedError"),
        ("connection_reset", "", "ConnectionResetError ConnectionAbortedError BrokenPipeError"),
        ("cancelled", "", "KeyboardInterrupt GeneratorExit SystemExit"),
        ("cancelled", "asyncio.exceptions", "CancelledError"),
        ("cancelled", "concurrent.futures._base", "CancelledError"),
        ("cancelled", "anyio", "Cancelled"),
        ("cancelled", "trio", "Cancelled"),
        ("local_resource", "", "MemoryError"),
        ("refused_locally", "", "FileNotFoundError PermissionError IsADirectoryError"),
        ("refused_locally", "", "NotADirectoryError FileExistsError"),
        # The standard library's, for a report that knows the bare name only.
        ("cancelled", "", "CancelledError"),
        ("dns_failure", "", "gaierror herror"),
        ("stream_truncated", "", "IncompleteRead IncompleteReadError"),
        ("connection_reset", "", "RemoteDisconnected SSLEOFError SSLZeroReturnError"),
        ("tls_failure", "", "SSLCertVerificationError"),
        ("invalid_upstream_response", "", "JSONDecodeError"),
        ("dns_failure", "socket", "gaierror herror"),
        ("connection_reset", "ssl", "SSLEOFError SSLZeroReturnError SSLSyscallError"),
        ("tls_failure", "ssl", "SSLCertVerificationError CertificateError"),
        ("stream_truncated", "asyncio.exceptions", "IncompleteReadError"),
        ("stream_truncated", "http.client", "IncompleteRead"),
        ("connection_reset", "http.client", "RemoteDisconnected"),
        ("invalid_upstream_response", "http.client", "BadStatusLine LineTooLong UnknownProtocol"),
        ("invalid_url", "http.client", "InvalidURL"),
        ("invalid_upstream_response", "json.decoder", "JSONDecodeError"),
        ("invalid_upstream_response", "simplejson.errors", "JSONDecodeError"),
        ("invalid_upstream_response", "orjson", "JSONDecodeError"),
        ("invalid_upstream_response", "msgspec", "DecodeError"),
        ("connect_timeout", "requests.exceptions", "ConnectTimeout"),
        ("read_timeout", "requests.exceptions", "ReadTimeout"),
        (
            "invalid_url",
            "requests.exceptions",
            "InvalidURL InvalidSchema MissingSchema URLRequired",
        ),
        ("invalid_url", "requests.exceptions", "InvalidProxyURL"),
        ("refused_locally", "requests.exceptions", "InvalidHeader UnrewindableBodyError"),
        ("too_many_redirects", "requests.exceptions", "TooManyRedirects"),
        (
            "invalid_upstream_response",
            "requests.exceptions",
            "ContentDecodingError JSONDecodeError",
        ),
        ("refused_locally", "requests.exceptions", "InvalidJSONError"),
        ("dns_failure", "urllib3.exceptions", "NameResolutionError"),
        ("connect_timeout", "urllib3.exceptions", "ConnectTimeoutError"),
        ("read_timeout", "urllib3.exceptions", "ReadTimeoutError"),
        ("stream_truncated", "urllib3.exceptions", "IncompleteRead InvalidChunkLength"),
        ("pool_timeout", "urllib3.exceptions", "EmptyPoolError FullPoolError"),
        ("invalid_url", "urllib3.exceptions", "LocationValueError ProxySchemeUnknown"),
        ("invalid_upstream_response", "urllib3.exceptions", "DecodeError BodyNotHttplibCompatible"),
        ("dns_failure", "aiohttp.client_exceptions", "ClientConnectorDNSError"),
        ("connect_timeout", "aiohttp.client_exceptions", "ConnectionTimeoutError"),
        ("read_timeout", "aiohttp.client_exceptions", "SocketTimeoutError"),
        ("tls_failure", "aiohttp.client_exceptions", "ServerFingerprintMismatch"),
        ("tls_failure", "aiohttp.client_exceptions", "ClientConnectorCertificateError"),
        ("connection_reset", "aiohttp.client_exceptions", "ServerDisconnectedError"),
        ("connection_reset", "aiohttp.client_exceptions", "ClientConnectionResetError"),
        ("invalid_url", "aiohttp.client_exceptions", "InvalidURL NonHttpUrlClientError"),
        ("too_many_redirects", "aiohttp.client_exceptions", "TooManyRedirects"),
        ("stream_truncated", "aiohttp.http_exceptions", "ContentLengthError"),
        ("stream_truncated", "aiohttp.http_exceptions", "TransferEncodingError"),
        ("invalid_upstream_response", "aiohttp.http_exceptions", "BadStatusLine LineTooLong"),
        ("invalid_upstream_response", "aiohttp.http_exceptions", "InvalidHeader BadHttpMessage"),
        ("invalid_upstream_response", "aiohttp.http_exceptions", "ContentEncodingError"),
        ("connection_reset", "anyio", "BrokenResourceError EndOfStream IncompleteRead"),
        ("connection_closed", "anyio", "ClosedResourceError"),
        ("connection_reset", "websockets.exceptions", "ConnectionClosedError ConnectionClosedOK"),
        ("invalid_url", "websockets.exceptions", "InvalidURI"),
    ),
}

#: Classes that their libraries raise for several troubles, to what they mean when nothing tells.
VAGUE: dict[str, str] = {
    **_httpx_vague("httpx", "httpcore"),
    **_httpx_vague("httpx2", "httpcore2"),
    **_table(
        ("timeout", "", "TimeoutError"),
        ("timeout", "asyncio.exceptions", "TimeoutError"),
        ("timeout", "concurrent.futures._base", "TimeoutError"),
        ("timeout", "socket", "timeout"),
        ("connection_error", "", "ConnectionError"),
        ("tls_failure", "ssl", "SSLError"),
        ("connection_error", "urllib.error", "URLError"),
        ("stream_truncated", "urllib.error", "ContentTooShortError"),
        ("connection_error", "requests.exceptions", "ConnectionError ProxyError RetryError"),
        ("timeout", "requests.exceptions", "Timeout"),
        ("tls_failure", "requests.exceptions", "SSLError"),
        ("stream_truncated", "requests.exceptions", "ChunkedEncodingError"),
        ("connection_error", "urllib3.exceptions", "MaxRetryError NewConnectionError ProxyError"),
        ("connection_reset", "urllib3.exceptions", "ProtocolError ConnectionError"),
        ("timeout", "urllib3.exceptions", "TimeoutError"),
        ("tls_failure", "urllib3.exceptions", "SSLError"),
        ("connection_error", "aiohttp.client_exceptions", "ClientConnectorError"),
        ("connection_error", "aiohttp.client_exceptions", "ClientConnectionError"),
        ("connection_reset", "aiohttp.client_exceptions", "ClientOSError ServerConnectionError"),
        ("timeout", "aiohttp.client_exceptions", "ServerTimeoutError"),
        ("tls_failure", "aiohttp.client_exceptions", "ClientSSLError ClientConnectorSSLError"),
        ("stream_truncated", "aiohttp.client_exceptions", "ClientPayloadError"),
        ("connection_reset", "h11._util", "RemoteProtocolError"),
        ("connection_reset", "h2.exceptions", "ProtocolError StreamClosedError"),
    ),
}
