"""Why there was no memory."""
