"""Copy finished record files to a store in the background, and prove that they arrived."""

from mirror.background import RecordLocation, RecordMirror, locate
from mirror.config import MirrorConfig
from mirror.errors import ConfigError, MirrorError, RecordError, StoreError
from mirror.judging import Finding, FindingKind
from mirror.repair import RepairPlan, RepairResult, repair
from mirror.settings import ServerSettings
from mirror.verify import Verification, VerifyLevel, verify

__all__ = [
    "ConfigError",
    "Finding",
    "FindingKind",
    "MirrorConfig",
    "MirrorError",
    "RecordError",
    "RecordLocation",
    "RecordMirror",
    "RepairPlan",
    "RepairResult",
    "ServerSettings",
    "StoreError",
    "Verification",
    "VerifyLevel",
    "locate",
    "repair",
    "verify",
]
