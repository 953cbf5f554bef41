"""Index each training step in W&B, link its records to their mirror, and bring a run's records back."""

# ruff: noqa: TC004 - the names are given out at run time too, by export_on_first_use

from typing import TYPE_CHECKING

from mirror.exports import export_on_first_use

if TYPE_CHECKING:
    from references.callback import SkycapRecordIndex
    from references.codec import decode, encode
    from references.config import RecordsConfig, WandbConfig, make_record_index
    from references.errors import ConfigError, LinkError, OutDirectoryError, ReferencesError, SourceError
    from references.indexing import StepIndexer
    from references.link import LinkSummary, link
    from references.link_plan import LinkedStep, Verdict
    from references.mirror_access import MirrorAccess
    from references.publisher_process import PublisherProcess
    from references.pull import pull
    from references.pull_plan import PullSummary
    from references.record_log import RecordLog
    from references.run_index import RecordLocation, Row, StepIndex
    from references.seams import Publisher, PublishSettings
    from references.selection import Selection, parse_steps
    from references.spool import Spool
    from references.steps import RunFacts, StepFacts, list_steps
    from references.verify_run import verify_run
    from references.verifying import RunVerification

export_on_first_use(
    __name__,
    {
        "references.callback": ["SkycapRecordIndex"],
        "references.codec": ["decode", "encode"],
        "references.config": ["RecordsConfig", "WandbConfig", "make_record_index"],
        "references.errors": ["ConfigError", "LinkError", "OutDirectoryError", "ReferencesError", "SourceError"],
        "references.indexing": ["StepIndexer"],
        "references.link": ["LinkSummary", "link"],
        "references.link_plan": ["LinkedStep", "Verdict"],
        "references.mirror_access": ["MirrorAccess"],
        "references.publisher_process": ["PublisherProcess"],
        "references.pull": ["pull"],
        "references.pull_plan": ["PullSummary"],
        "references.record_log": ["RecordLog"],
        "references.run_index": ["RecordLocation", "Row", "StepIndex"],
        "references.seams": ["PublishSettings", "Publisher"],
        "references.selection": ["Selection", "parse_steps"],
        "references.spool": ["Spool"],
        "references.steps": ["RunFacts", "StepFacts", "list_steps"],
        "references.verify_run": ["verify_run"],
        "references.verifying": ["RunVerification"],
    },
)

__all__ = [
    "ConfigError",
    "LinkError",
    "LinkSummary",
    "LinkedStep",
    "MirrorAccess",
    "OutDirectoryError",
    "PublishSettings",
    "Publisher",
    "PublisherProcess",
    "PullSummary",
    "RecordLocation",
    "RecordLog",
    "RecordsConfig",
    "ReferencesError",
    "Row",
    "RunFacts",
    "RunVerification",
    "Selection",
    "SkycapRecordIndex",
    "SourceError",
    "Spool",
    "StepFacts",
    "StepIndex",
    "StepIndexer",
    "Verdict",
    "WandbConfig",
    "decode",
    "encode",
    "link",
    "list_steps",
    "make_record_index",
    "parse_steps",
    "pull",
    "verify_run",
]
