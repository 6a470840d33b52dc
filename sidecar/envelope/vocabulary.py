"""The words of the event vocabularies that streams speak: ends, errors, opening frames.

Chat chunks, OpenAI's response events, Anthropic's messages and Ollama's lines; they do not collide.
"""

from __future__ import annotations

import re

# What makes an event worth decoding once content has been seen.
MARKER = re.compile(
    r'"error"(?!\s*:\s*(?:null|""|\{\s*\}))|"finish_reason"\s*:\s*"|"done"\s*:\s*true'
    r'|"type"\s*:\s*"(?:message_stop|message_delta|error|response\.(?:completed|failed|incomplete'
    r'|cancelled|done|error))"|"event_type"\s*:\s*"error"|\.response\.(?:error|done)"|"isError"'
    r'|"(?:finishReason|blockReason|generated_text)"\s*:\s*"|"(?:message|stream)-(?:end|error)"'
    r'|"interaction\.complete'
    r'|"type"\s*:\s*"(?:image_(?:generation|edit)\.completed|(?:speech\.audio|transcript\.text)\.done'
    r'|conversation\.response\.done|thread\.run\.completed|done)"'
)

# How a chunk of mere content begins, what it never holds, and what it holds only as these go on.
# Each hit of MARKER has one of the words in it: a chunk without them needs no parser. The words are
# text: looked for in bytes, each costs Python (3.11) an exception that it throws away.
PLAIN_STARTS = (
    b"data: ",
    b"event: content_block_delta\n",
    b"event: response.output_text.delta\n",
)
SIGNIFICANT = (
    "rror", "[DONE]", '"done"', "message_", "id:", "retry:", "\r", "\n:", "Reason", "-end",
    "interaction.", ".completed", ".done",
)  # fmt: skip
HARMLESS_AS = (
    ("finish_reason", ('":null',)),
    ("generated_text", ('":null',)),
    ("response.", ("output_text.delta",)),
    ("event", (": content_block_delta\n", ": response.output_text.delta\n")),
)

TERMINAL_RESPONSES = frozenset(
    {"response.completed", "response.incomplete", "response.cancelled", "response.done"}
)
# Whole events of other routes after which nothing follows.
OTHER_TERMINALS = frozenset(
    {
        "image_generation.completed",
        "image_edit.completed",
        "speech.audio.done",
        "transcript.text.done",
        "conversation.response.done",
        "thread.run.completed",
        "done",
    }
)
ERROR_EVENTS = frozenset(
    {
        "error",
        "response.failed",
        "response.error",
        "conversation.response.error",
        "thread.run.failed",
    }
)
OPENING = frozenset(
    {
        "message_start",
        "ping",
        "content_block_start",
        "response.created",
        "response.in_progress",
        "response.queued",
        "response.output_item.added",
        "response.content_part.added",
        "conversation.response.started",
    }
)
