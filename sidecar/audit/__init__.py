"""The audit of an upstream: what cannot succeed is sent, and what comes back is held against it."""
