"""Real servers and scripted faults on loopback, for tests and benchmarks of this package and of its users."""

from mirror.testing.checks import refuse_wrong_xxhash128
from mirror.testing.exchange import SeenRequest
from mirror.testing.faults import (
    Answer,
    Fault,
    FlipReplyBit,
    FlipRequestBit,
    Hang,
    LoseReply,
    Reply,
    Reset,
    Stall,
    Throttle,
    TruncateReply,
    every_request,
    requests_to,
    s3_error,
)
from mirror.testing.process import ServerError
from mirror.testing.proxy import FaultProxy
from mirror.testing.servers import ADMIN, READER, WRITER, Azurite, FakeGcs, Identity, RcloneS3, SeaweedS3

__all__ = [
    "ADMIN",
    "READER",
    "WRITER",
    "Answer",
    "Azurite",
    "FakeGcs",
    "Fault",
    "FaultProxy",
    "FlipReplyBit",
    "FlipRequestBit",
    "Hang",
    "Identity",
    "LoseReply",
    "RcloneS3",
    "Reply",
    "Reset",
    "SeaweedS3",
    "SeenRequest",
    "ServerError",
    "Stall",
    "Throttle",
    "TruncateReply",
    "every_request",
    "refuse_wrong_xxhash128",
    "requests_to",
    "s3_error",
]
