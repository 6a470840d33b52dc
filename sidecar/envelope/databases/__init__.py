"""What the databases raise, one file a vendor."""
