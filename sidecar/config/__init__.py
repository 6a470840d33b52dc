"""`breakers.yaml`: one schema that validates, documents and resolves it."""
