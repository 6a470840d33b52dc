"""What the vendor SDKs raise, one file a family."""
