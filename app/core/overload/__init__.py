"""Facts about a worker -> may it take requests."""
