"""What redis-py raises, with and without an event loop, when a real Redis fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.servers.judging import Means, check, judged
from tests.servers.processes import wait_until
from tests.servers.sessions import Beside, raised_by


def transient(code, verdict, wait=None):
    return Means("transient", code, True, wait, verdict)


def mistaken(code):
    return Means("validation", code, False, None, "alive")


def denied(code):
    return Means("authentication", code, False, None, "alive")


REFUSED = transient("connection_refused", "failure")
RESET = transient("connection_reset", "failure")


class Client:
    """One client of redis-py, whichever kind; no retries of its own."""

    def __init__(self, kind, server, **options):
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        settings = {
            "host": "127.0.0.1",
            "port": server.port if server else 1,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": 20,
            **options,
        }
        self.kind = kind
        if kind == "sync":
            self.client = redis.Redis(**settings)
        else:
            from redis.asyncio.retry import Retry as AsyncRetry

            settings["retry"] = AsyncRetry(NoBackoff(), 0)
            self.runner = asyncio.Runner()
            self.client = redis.asyncio.Redis(**settings)

    def run(self, *command):
        if self.kind == "sync":
            return self.client.execute_command(*command)
        return self.runner.run(self._run(*command))

    async def _run(self, *command):
        return await self.client.execute_command(*command)

    def close(self):
        if self.kind == "sync":
            self.client.close()
            return
        with suppress(Exception):
            self.runner.run(self.client.aclose())
        self.runner.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture(params=["sync", "asyncio"])
def connect(request, start_redis, sessions):
    return lambda server, **options: sessions(Client(request.param, server, **options))


def means_(error, expected, like=None):
    return check(error, expected, vendor="redis", driver="redis", like=like)


def test_what_the_caller_got_wrong(connect, start_redis):
    client = connect(start_redis())
    client.run("SET", "k", "v")
    means_(raised_by(lambda: client.run("LPUSH", "k", "1")), mistaken("WRONGTYPE"), "wrongtype")
    means_(raised_by(lambda: client.run("NOPECMD")), mistaken("ERR"), "unknown-cmd")
    means_(
        raised_by(lambda: client.run("EVALSHA", "0" * 40, "0")),
        transient("NOSCRIPT", "alive"),
        "noscript",
    )
    means_(
        raised_by(lambda: client.run("EVAL", "return redis.error_reply('MYERR custom')", "0")),
        Means("permanent", "MYERR", False, None, "alive"),
        "script-custom",
    )


def test_rights(connect, start_redis):
    server = start_redis(requirepass="s3cret-pass")
    means_(raised_by(lambda: connect(server).run("PING")), denied("NOAUTH"))
    wrong = raised_by(lambda: connect(server, password="wrong-pass").run("PING"))
    found = means_(wrong, denied("WRONGPASS"), "wrongpass")
    assert "wrong-pass" not in found.envelope.message
    client = connect(server, password="s3cret-pass")
    client.run("ACL", "SETUSER", "reader", "on", ">s3cret-pass", "~*", "+get")
    reader = connect(server, username="reader", password="s3cret-pass")
    means_(raised_by(lambda: reader.run("SET", "k", "v")), denied("NOPERM"))


def test_memory_clients_and_replicas(connect, start_redis):
    server = start_redis(maxmemory="2mb", maxmemory_policy="noeviction")
    client = connect(server)

    def fill():
        for number in range(100):
            client.run("SET", f"k{number}", "x" * 100_000)

    means_(raised_by(fill), transient("OOM", "failure"), "oom")
    server = start_redis(min_replicas_to_write="1")
    error = raised_by(lambda: connect(server).run("SET", "k", "v"))
    means_(error, transient("NOREPLICAS", "failure"), "noreplicas")


def test_a_server_that_is_full(connect, start_redis):
    """A client that writes before it reads finds its connection cut, and not the reply."""
    server, errors = start_redis(maxclients="3"), []

    def crowd():
        for _ in range(20):
            connect(server).run("PING")

    def told():
        errors.append(raised_by(crowd))
        return "max number of clients" in str(errors[-1])

    wait_until(told, "a refusal with its reason")
    *cut, refused = errors
    means_(refused, transient("max_clients", "failure"), "maxclients")
    for error in cut:
        means_(error, RESET)


def test_a_replica(connect, start_redis):
    primary = start_redis(repl_diskless_sync_delay="0")
    replica = start_redis(
        replicaof=f"127.0.0.1 {primary.port}", replica_serve_stale_data="no", repl_timeout="10"
    )
    client = connect(replica)
    wait_until(lambda: b"up" in status_of(client), "a replica in sync")
    error = raised_by(lambda: client.run("SET", "k", "v"))
    means_(error, transient("READONLY", "failure"), "readonly")
    primary.stop()
    wait_until(lambda: b"down" in status_of(client), "a replica without its primary")
    means_(raised_by(lambda: client.run("GET", "k")), transient("MASTERDOWN", "failure"))


def status_of(client):
    """What a replica says about its link: `up` or `down`."""
    told = client.run("INFO", "replication")
    status = told["master_link_status"] if isinstance(told, dict) else told
    return status if isinstance(status, bytes) else str(status).encode()


def test_a_script_that_blocks(connect, start_redis):
    server = start_redis(busy_reply_threshold="10")
    runner, other = connect(server), connect(server)
    beside = Beside(lambda: runner.run("EVAL", "while true do end", "0"))
    errors = []

    def busy():
        with suppress(Exception):
            other.run("PING")
            return False
        errors.append(raised_by(lambda: other.run("PING")))
        return True

    wait_until(busy, "a server that is busy")
    means_(errors[0], transient("BUSY", "failure"), "busy")
    other.run("SCRIPT", "KILL")
    means_(beside.wait(), transient("ERR", "alive"), "script-killed")


def test_a_cluster_without_slots(connect, start_redis):
    client = connect(start_redis(cluster_enabled="yes"))
    means_(raised_by(lambda: client.run("GET", "k")), transient("CLUSTERDOWN", "failure"))
    client.run("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    error = raised_by(lambda: client.run("MGET", "a", "b"))
    means_(error, mistaken("CROSSSLOT"))


def test_the_connection(connect, start_redis):
    means_(raised_by(lambda: connect(None).run("PING")), REFUSED, "refused")
    server = start_redis()
    slow = connect(server, socket_timeout=0.1)
    error = raised_by(lambda: slow.run("BLPOP", "nothing", "30"))
    means_(error, transient("read_timeout", "failure"), "timeout-read")
    waiting = connect(server)
    beside = Beside(lambda: waiting.run("BLPOP", "nothing", "30"))
    other = connect(server)
    wait_until(lambda: other.run("INFO", "clients")["blocked_clients"] >= 1, "a client that waits")
    server.stop()
    error = beside.wait()
    means_(error, RESET)
    assert not judged(error, "redis", "redis", phase="commit").envelope.retryable
    means_(raised_by(lambda: connect(server).run("PING")), REFUSED, "refused")


def test_an_optimistic_lock(start_redis):
    """Only the pipelines of the client raise it: the server answers nothing instead of results."""
    import redis

    server = start_redis()
    with redis.Redis(port=server.port) as client, client.pipeline() as pipeline:
        pipeline.watch("k")
        client.set("k", "changed")
        pipeline.multi()
        pipeline.set("k", "mine")
        error = raised_by(pipeline.execute)
    means_(error, transient("watch_error", "alive", wait=0), "watch-error")


def test_a_pool_of_the_clients_own(start_redis):
    import redis

    server = start_redis()
    pool = redis.ConnectionPool(port=server.port, max_connections=1)
    held = pool.get_connection()
    try:
        error = raised_by(lambda: redis.Redis(connection_pool=pool).ping())
    finally:
        pool.release(held)
        pool.disconnect()
    means_(error, transient("pool_timeout", "neutral"))
