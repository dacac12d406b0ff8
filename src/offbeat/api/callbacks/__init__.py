"""Callbacks: what users implement (`callback`), what it can reach in a run (`source`), and what calls it (`calls`)."""
