"""What a daemon shares with others of its kind, its own successor among them."""
