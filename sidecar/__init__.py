"""breaker-sidecar: a local circuit breaker and error envelope for everything an agent calls."""

__version__ = "0.1.0"
