"""OpenTelemetry's variables as the specification has them."""

from typing import Any

import pytest

from sidecar.telemetry.otlp.settings import Settings, read, sampler

AT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}


def found(**environ: str) -> Settings:
    chosen = read({**AT, **environ})
    assert chosen is not None
    return chosen


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_EXPORTER": "otlp"},
        {**AT, "OTEL_SDK_DISABLED": "TRUE"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {**AT, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_nothing_is_exported_unless_an_endpoint_says_where(environ: dict[str, str]) -> None:
    assert read(environ) is None


def test_log_lines_leave_only_if_asked_for() -> None:
    assert set(found().endpoints) == {"traces", "metrics"}
    assert set(found(OTEL_LOGS_EXPORTER="otlp").endpoints) == {"traces", "metrics", "logs"}
    own = read({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://l:1/custom"})
    assert own is not None
    assert {name: one.url for name, one in own.endpoints.items()} == {"logs": "http://l:1/custom"}


def test_where_each_signal_goes() -> None:
    chosen = found(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="https://m/x?token=secret")
    assert chosen.endpoints["traces"].url == "http://collector:4318/v1/traces"
    assert chosen.endpoints["metrics"].url == "https://m/x?token=secret"
    assert chosen.endpoints["metrics"].shown == "https://m/x"
    grpc = found(
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc", OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="http/protobuf"
    )
    assert (grpc.endpoints["traces"].grpc, grpc.endpoints["traces"].insecure) == (True, True)
    assert grpc.endpoints["metrics"].grpc is False
    bare = found(OTEL_EXPORTER_OTLP_ENDPOINT="collector:4317", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert bare.endpoints["traces"].insecure is False
    bare = found(OTEL_EXPORTER_OTLP_ENDPOINT="collector:4317", OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
                 OTEL_EXPORTER_OTLP_INSECURE="true")  # fmt: skip
    assert bare.endpoints["traces"].insecure is True


def test_the_rest_of_an_endpoint() -> None:
    one = found(
        OTEL_EXPORTER_OTLP_HEADERS="a=1,Api-Key=x%20y, broken ,=2,bad=%0A",
        OTEL_EXPORTER_OTLP_TRACES_HEADERS="",
        OTEL_EXPORTER_OTLP_TIMEOUT="2500",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_EXPORTER_OTLP_CERTIFICATE="/ca.pem",
        OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE="/own.pem",
    ).endpoints["traces"]
    assert one.headers == (("a", "1"), ("api-key", "x y"))
    assert (one.timeout, one.gzip, one.certificate) == (2.5, True, "/own.pem")


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
        {"OTEL_BSP_SCHEDULE_DELAY": "nan"},
        {"OTEL_METRIC_EXPORT_INTERVAL": "1e400"},
        {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "collector:4318"},
    ],
)
def test_what_cannot_be_followed_is_told_and_stops_nothing(environ: dict[str, str]) -> None:
    chosen = found(**environ)
    assert chosen.warnings
    assert "metrics" in chosen.endpoints
    assert (chosen.queue, chosen.delay, chosen.interval) == (2048, 5.0, 60.0)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://[::1",
        "http://",
        "http://c:port",
        "http://c:99999",
        "http://c:0",
        "ftp://c",
        "unix:///c",
    ],
)
def test_an_endpoint_that_is_none_is_told(endpoint: str, protocol: str) -> None:
    chosen = read(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    )
    assert chosen is not None
    assert chosen.endpoints == {}
    assert [one.rpartition(": ")[2] for one in chosen.warnings] == [
        "no traces are exported", "no metrics are exported",
    ]  # fmt: skip


def test_a_bare_host_is_one_for_grpc_alone() -> None:
    bare = {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}
    told = read(bare)
    assert told is not None
    assert told.warnings
    assert not told.endpoints
    chosen = read({**bare, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert chosen is not None
    assert chosen.endpoints["traces"].url == "https://collector:4318"


@pytest.mark.parametrize("value", ["inf", "nan", "1e400", "99999999999", "0", "-5"])
def test_a_timeout_is_always_one(value: str) -> None:
    assert 0.1 <= found(OTEL_EXPORTER_OTLP_TIMEOUT=value).endpoints["traces"].timeout <= 60


def test_who_is_traced() -> None:
    ids = [f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}" for number in range(1, 10_001)]
    always: Any = found().sampling
    assert always(ids[0], None)
    assert always(ids[0], True)
    assert not always(ids[0], False)
    off = found(OTEL_TRACES_SAMPLER="always_off").sampling
    assert not off(ids[0], True)
    quarter = sampler(0.25, parent_decides=True)
    taken = [one for one in ids if quarter(one, None)]
    assert 2_300 < len(taken) < 2_700
    assert all(quarter(one, True) for one in ids)
    own = sampler(0.25, parent_decides=False)
    assert [one for one in ids if own(one, True)] == taken


def test_who_speaks() -> None:
    who = found(OTEL_RESOURCE_ATTRIBUTES="service.name=a,team=x%2Cy,broken").resource
    assert (who["service.name"], who["team"]) == ("a", "x,y")
    assert (
        found(OTEL_SERVICE_NAME="b", OTEL_RESOURCE_ATTRIBUTES="service.name=a").resource[
            "service.name"
        ]
        == "b"
    )
    assert found().resource["service.name"] == "breaker-sidecar"
    assert found().resource["service.instance.id"] != found().resource["service.instance.id"]
