"""Faults on purpose: upstreams that lie, and callers that believe them."""
