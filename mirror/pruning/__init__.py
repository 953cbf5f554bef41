"""Freeing a local disk: what is proved to be in the mirror is judged, examined and removed, record by record."""
