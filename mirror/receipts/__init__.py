"""Receipts, the proof that records arrived: one line each, in the mirror and beside the records."""
