"""Index each training step in W&B, and point it at the copies of its records."""
