"""Imports of heavy clients, made when they are first needed, mostly on the mirror's own threads; a fork waits for them.

A child that was forked while another thread imported a module would wait for that module's lock for ever.
"""

from __future__ import annotations

import os
import threading

importing = threading.RLock()  # held during such an import, of which there may be others inside

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)
