"""What grpcio raises, against a real server on loopback: its sixteen statuses, trailers, silence."""

import base64
import time
from concurrent import futures

import grpc
import grpc.aio
import pytest

from sidecar.envelope.describe import describe
from sidecar.envelope.sdk import classify
from tests.cases import NOW, all_cases

from .scripted import threads_without_signals

CASES = {
    case["id"]: case for case in all_cases("sdk-cases.jsonl") if case["sdk"].startswith("grpc")
}
RETRY_INFO = base64.b64decode(
    "CAoSGFRyYW5zYWN0aW9uIHdhcyBhYm9ydGVkLhozCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0cnlJbmZvEgcKBRCA5Zp3"
)


class Handler(grpc.GenericRpcHandler):
    """Answers `/x/STATUS` with that status; `/x/HANG` never, `/x/BOOM` with a fault of its own."""

    def service(self, details):
        name = details.method.rpartition("/")[2]
        trailers = [
            (key, value) for key, value in details.invocation_metadata if key.startswith("t-")
        ]

        def answer(request, context):
            if name == "HANG":
                time.sleep(0.5)
            if name == "BOOM":
                raise RuntimeError("boom")
            context.set_trailing_metadata(
                [(key.removeprefix("t-"), value) for key, value in trailers]
            )
            context.abort(
                grpc.StatusCode[name if name in grpc.StatusCode.__members__ else "OK"],
                f"msg {name}",
            )

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture(scope="module", autouse=True)
def _signals():
    with threads_without_signals():
        yield


@pytest.fixture(scope="module")
def address(_signals):
    pool = futures.ThreadPoolExecutor(4)
    server = grpc.server(pool, handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    pool.shutdown()


def raised(address, method, *, timeout=5.0, metadata=()):
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/x/{method}")(b"", timeout=timeout, metadata=metadata)
    return caught.value


def told(error):
    found = classify(describe(error), sdk="grpc", now=NOW)
    envelope = found.envelope
    return envelope.class_, envelope.code, envelope.retryable, found.verdict


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("CANCELLED", ("transient", True, "alive")),
        ("UNKNOWN", ("transient", True, "failure")),
        ("INVALID_ARGUMENT", ("validation", False, "alive")),
        ("DEADLINE_EXCEEDED", ("transient", True, "failure")),
        ("NOT_FOUND", ("permanent", False, "alive")),
        ("ALREADY_EXISTS", ("permanent", False, "alive")),
        ("PERMISSION_DENIED", ("authentication", False, "alive")),
        ("UNAUTHENTICATED", ("authentication", False, "alive")),
        ("RESOURCE_EXHAUSTED", ("rate_limit", True, "throttle")),
        ("FAILED_PRECONDITION", ("validation", False, "alive")),
        ("ABORTED", ("transient", True, "alive")),
        ("OUT_OF_RANGE", ("validation", False, "alive")),
        ("UNIMPLEMENTED", ("permanent", False, "alive")),
        ("INTERNAL", ("transient", True, "failure")),
        ("UNAVAILABLE", ("transient", True, "failure")),
        ("DATA_LOSS", ("transient", False, "failure")),
    ],
)
def test_a_status(address, status, expected):
    error = raised(address, status)
    class_, retryable, verdict = expected
    assert told(error) == (class_, status, retryable, verdict)
    assert classify(describe(error)).envelope.message == f"msg {status}"
    recorded = CASES.get(f"grpc-{status.lower().replace('_', '-')}")
    if recorded is not None:
        live = describe(error)
        assert (live.type, list(live.mro), live.code) == (
            recorded["error"]["type"], recorded["error"]["mro"], recorded["error"]["code"],
        )  # fmt: skip


def test_no_server():
    assert told(raised("127.0.0.1:1", "X")) == ("transient", "UNAVAILABLE", True, "failure")


def test_a_fault_of_the_server(address):
    assert told(raised(address, "BOOM")) == ("transient", "UNKNOWN", True, "failure")


def test_no_answer_in_time(address):
    error = raised(address, "HANG", timeout=0.1)
    assert told(error) == ("transient", "DEADLINE_EXCEEDED", True, "failure")


@pytest.mark.parametrize(
    ("trailers", "wait", "retryable"),
    [
        ([("t-grpc-retry-pushback-ms", "250")], 0.25, True),
        ([("t-grpc-retry-pushback-ms", "-1")], None, False),
        ([("t-retry-after", "3")], 3.0, True),
    ],
)
def test_what_trailers_ask_for(address, trailers, wait, retryable):
    envelope = classify(describe(raised(address, "UNAVAILABLE", metadata=trailers))).envelope
    assert (envelope.retry_after, envelope.retryable) == (wait, retryable)


def test_a_delay_in_the_details(address):
    trailers = [("t-grpc-status-details-bin", RETRY_INFO)]
    error = describe(raised(address, "ABORTED", metadata=trailers))
    envelope = classify(error).envelope
    assert (envelope.code, envelope.retry_after) == ("ABORTED", 0.25)
    recorded = CASES["grpc-retryinfo"]["error"]["headers"]["grpc-status-details-bin"]
    assert error.headers.get("grpc-status-details-bin").rstrip("=") == recorded.rstrip("=")


async def test_the_asynchronous_client(address):
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            await channel.unary_unary("/x/UNAVAILABLE")(b"")
    live = describe(caught.value)
    assert live.type == "grpc.aio._call.AioRpcError"
    assert told(caught.value) == ("transient", "UNAVAILABLE", True, "failure")


def test_a_stream_that_ends_in_an_error(address):
    with grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.unary_stream("/x/ABORTED")(b""))
        assert told(caught.value) == ("transient", "ABORTED", True, "alive")


def test_a_call_that_its_caller_cancelled(address):
    with grpc.insecure_channel(address) as channel:
        future = channel.unary_unary("/x/HANG").future(b"")
        future.cancel()
        with pytest.raises(grpc.FutureCancelledError) as caught:
            future.result()
    assert told(caught.value) == ("transient", "CANCELLED", True, "neutral")
