"""OpenAI's own realtime connection through the daemon, against a scripted server."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
import websockets
from websockets.asyncio.server import serve

EVENTS = [
    {"type": "response.created", "event_id": "e2", "response": {"id": "r1", "object": "realtime.response"}},
    {"type": "response.output_text.delta", "event_id": "e3", "response_id": "r1", "item_id": "i1",
     "output_index": 0, "content_index": 0, "delta": "Hello"},
    {"type": "response.done", "event_id": "e4", "response": {"id": "r1", "status": "completed"}},
]  # fmt: skip
HANG = 10


async def script(socket) -> None:
    assert socket.request.path == "/v1/realtime?model=gpt-realtime"
    assert socket.request.headers["authorization"] == "Bearer sk-test"
    await socket.send(json.dumps({"type": "session.created", "event_id": "e1", "session": {}}))
    async for message in socket:
        asked = json.loads(message)
        if asked["type"] == "response.create":
            for event in EVENTS:
                await socket.send(json.dumps(event))
        elif asked["type"] == "session.update":
            await socket.close(1013, "overloaded")


async def told(running):
    async with asyncio.timeout(HANG):
        while not running.calls:
            await asyncio.sleep(0.01)
    return running.calls[-1]


@pytest.fixture
async def realtime(start):
    async with serve(script, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        running = await start(
            {"openai": {"upstream": f"http://127.0.0.1:{port}", "dialect": "openai"}}
        )
        async with openai.AsyncOpenAI(
            api_key="sk-test", base_url=f"http://127.0.0.1:{running.port}/openai/v1"
        ) as client:
            yield running, client


async def test_a_conversation(realtime) -> None:
    running, client = realtime
    text = ""
    async with asyncio.timeout(HANG), client.realtime.connect(model="gpt-realtime") as connection:
        async for event in connection:
            if event.type == "session.created":
                await connection.response.create()
            elif event.type == "response.output_text.delta":
                text += event.delta
            elif event.type == "response.done":
                break
    assert text == "Hello"
    call = await told(running)
    assert (call.verdict, call.key) == ("success", "openai/gpt-realtime")


async def test_a_server_in_trouble(realtime) -> None:
    running, client = realtime
    async with asyncio.timeout(HANG), client.realtime.connect(model="gpt-realtime") as connection:
        await connection.recv()
        await connection.session.update(session={"type": "realtime"})
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await connection.recv()
    assert caught.value.rcvd.code == 1013
    assert (await told(running)).verdict == "failure"


async def test_a_refused_handshake(start, upstream, api) -> None:
    del api
    running = await start({"openai": {"upstream": "http://127.0.0.1:1", "dialect": "openai"}})
    async with openai.AsyncOpenAI(
        api_key="sk-test", base_url=f"http://127.0.0.1:{running.port}/openai/v1"
    ) as client:
        with pytest.raises(websockets.InvalidStatus) as caught:
            await client.realtime.connect(model="gpt-realtime").enter()
    assert caught.value.response.status_code == 502
    assert "connection_refused" in caught.value.response.headers["x-error-envelope"]
