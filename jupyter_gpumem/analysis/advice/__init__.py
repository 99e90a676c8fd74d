"""What would save memory."""
