"""The admin plane: health, status, events, configuration and control."""
