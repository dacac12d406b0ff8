"""What lag costs in learning, and what it gains in time."""
