"""An hour's work in ten minutes: does anything get lost, and does anything stay behind?

`python -m bench.soak --seconds 600` runs a daemon at the limit of its core, between callers and an
upstream that behave as badly as any, while it is reloaded, frozen, ended and started anew, and
while its upstream dies and comes back. Then it closes the books: what the callers saw, what the
upstream wrote down, what the daemon counted and what it logged have to be the same calls, to the
last one; each refusal and each failure needs its cause.

`calls.py` says what is asked, what the upstream does about it and what may come of it;
`upstream.py` does it; `callers.py` asks; `trouble.py` disturbs; `process.py` is the daemon from
outside, `inside.py` from inside; `books.py` closes the books, `leaks.py` looks at what is left.
"""
