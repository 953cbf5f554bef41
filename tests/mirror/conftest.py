"""Properties of the mirror hold on any machine: no example has a deadline."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("any machine", deadline=None, max_examples=60)
settings.load_profile("any machine")
