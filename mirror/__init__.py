"""Copy finished record files to a store in the background, and prove that they arrived."""

# ruff: noqa: TC004 - the names are given out at run time too, by export_on_first_use

from typing import TYPE_CHECKING

from mirror.exports import export_on_first_use

if TYPE_CHECKING:
    from mirror.background import RecordLocation, RecordMirror, locate
    from mirror.config import MirrorConfig
    from mirror.errors import ConfigError, EmptyMirrorError, MirrorError, RecordError, StoreError
    from mirror.judging import Finding, FindingKind
    from mirror.pruning.judging import Keep, PruneRules, PruneStep
    from mirror.pruning.prune import PruneResult, prune
    from mirror.repairing.plan import RepairPlan, RepairResult
    from mirror.repairing.repair import repair
    from mirror.settings import ServerSettings
    from mirror.verify import Verification, VerifyLevel, verify

export_on_first_use(
    __name__,
    {
        "mirror.background": ["RecordLocation", "RecordMirror", "locate"],
        "mirror.config": ["MirrorConfig"],
        "mirror.errors": ["ConfigError", "EmptyMirrorError", "MirrorError", "RecordError", "StoreError"],
        "mirror.judging": ["Finding", "FindingKind"],
        "mirror.pruning.judging": ["Keep", "PruneRules", "PruneStep"],
        "mirror.pruning.prune": ["PruneResult", "prune"],
        "mirror.repairing.plan": ["RepairPlan", "RepairResult"],
        "mirror.repairing.repair": ["repair"],
        "mirror.settings": ["ServerSettings"],
        "mirror.verify": ["Verification", "VerifyLevel", "verify"],
    },
)

__all__ = [
    "ConfigError",
    "EmptyMirrorError",
    "Finding",
    "FindingKind",
    "Keep",
    "MirrorConfig",
    "MirrorError",
    "PruneResult",
    "PruneRules",
    "PruneStep",
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
    "prune",
    "repair",
    "verify",
]
