"""A basket and what it costs."""
