"""Copy finished record files to a store in the background, and prove that they arrived."""

from mirror.background import RecordLocation, RecordMirror, locate
from mirror.config import MirrorConfig
from mirror.errors import ConfigError, MirrorError, RecordError, StoreError

__all__ = [
    "ConfigError",
    "MirrorConfig",
    "MirrorError",
    "RecordError",
    "RecordLocation",
    "RecordMirror",
    "StoreError",
    "locate",
]
