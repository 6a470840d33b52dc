"""What the agent calls by itself: it asks for a permit here, calls, and reports how it went."""
