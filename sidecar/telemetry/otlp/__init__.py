"""OTLP: spans, points and log lines for a collector; loaded only where one is configured.

The SDK's instruments and the project's protobuf messages are OpenTelemetry's; what sends them is
ours. The library's exporters send from threads of their own, retry for half a minute, log each
failure, and hold the exit up while they do; and its way from span to bytes costs as much as the
rest of a call. Here everything runs in the daemon's loop, behind queues with an end.
"""
