"""Each foreign error, as the real libraries raise it, is sorted by what to do next."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import azure.core.exceptions as azure_errors
import botocore.exceptions as boto_errors
import google.api_core.exceptions
import google.auth.exceptions
import pytest
import requests.exceptions
from aiohttp.client_reqrep import ConnectionKey, RequestInfo
from azure.identity import CredentialUnavailableError
from botocore.exceptions import ClientError
from gcsfs.retry import ChecksumError, HttpError, validate_response
from multidict import CIMultiDict, CIMultiDictProxy
from s3fs.errors import ERROR_CODE_TO_EXCEPTION, translate_boto_error
from yarl import URL

from mirror.errors import (
    AccessDeniedError,
    CredentialsAbsentError,
    CredentialsError,
    DeadlineError,
    DoubtfulRefusalError,
    FileRefusedError,
    NotFoundError,
    RecordChangedError,
    StoreError,
    StoreRefusedError,
    ThrottledError,
    TryAgainError,
)
from mirror.redact import Redactor
from mirror.stores.gcs import GcsAnswerError
from mirror.stores.translate import CLASSES, CODES, ERRNOS, STATUSES, classify, opening, translating
from mirror.stores.words import MAX_REASON_CHARS

Kind = type[StoreError]
google_errors: Any = google.auth.exceptions  # their constructors have no types
google_api_errors: Any = google.api_core.exceptions
SOCKET = ConnectionKey("host", 80, is_ssl=False, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)


def said_nothing(text: str) -> str:
    return text


def answered(code: str, status: int, headers: Mapping[str, str] | None = None, message: str = "words") -> ClientError:
    """Return what botocore raises for an answer of S3."""
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": dict(headers or {})}
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}, "PutObject")


def gcs_answered(status: int, reason: str | None = None, message: str = "words") -> GcsAnswerError:
    """Return what our own GCS driver raises for an answer."""
    errors = f',"errors":[{{"reason":"{reason}"}}]' if reason else ""
    return GcsAnswerError(status, f'{{"error":{{"code":{status},"message":"{message}"{errors}}}}}'.encode(), {})


def gcsfs_raises(status: int, content: bytes = b'{"error":{"message":"words"}}') -> Exception:
    """Return what gcsfs itself raises for an answer."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        validate_response(status, content, "bucket/object")
    return caught.value


def azure_answered(status: int, code: str | None = None) -> azure_errors.HttpResponseError:
    error = azure_errors.HttpResponseError("words")
    error.status_code = status
    if code:
        error.error_code = code  # type: ignore[attr-defined] # set by azure-storage, as a string or an enumeration
    return error


S3_CODES: list[tuple[str, int, Kind]] = [
    ("SlowDown", 503, ThrottledError),
    ("SlowDownRead", 503, ThrottledError),
    ("SlowDownWrite", 503, ThrottledError),
    ("Throttling", 400, ThrottledError),
    ("ThrottlingException", 400, ThrottledError),
    ("RequestLimitExceeded", 503, ThrottledError),
    ("TooManyRequests", 429, ThrottledError),
    ("TooManyRequestsException", 429, ThrottledError),
    ("BandwidthLimitExceeded", 503, ThrottledError),
    ("ServerBusy", 503, ThrottledError),
    ("RequestTimeout", 400, TryAgainError),
    ("RequestTimeoutException", 400, TryAgainError),
    ("InternalError", 500, TryAgainError),
    ("ServiceUnavailable", 503, TryAgainError),
    ("OperationAborted", 409, TryAgainError),
    ("ConditionalRequestConflict", 409, TryAgainError),
    ("TemporaryRedirect", 307, TryAgainError),
    ("OperationTimedOut", 500, TryAgainError),
    ("NoSuchUpload", 404, TryAgainError),
    ("BadDigest", 400, TryAgainError),
    ("InvalidDigest", 400, TryAgainError),
    ("IncompleteBody", 400, TryAgainError),
    ("XAmzContentSHA256Mismatch", 400, TryAgainError),
    ("XAmzContentChecksumMismatch", 400, TryAgainError),
    ("ExpiredToken", 400, CredentialsError),
    ("ExpiredTokenException", 400, CredentialsError),
    ("TokenRefreshRequired", 400, CredentialsError),
    ("RequestTimeTooSkewed", 403, CredentialsError),
    ("RequestExpired", 400, CredentialsError),
    ("InvalidToken", 400, CredentialsError),
    ("400", 400, CredentialsError),
    ("KeyTooLong", 400, FileRefusedError),
    ("KeyTooLongError", 400, FileRefusedError),
    ("EntityTooLarge", 400, FileRefusedError),
    ("EntityTooSmall", 400, FileRefusedError),
    ("InvalidObjectName", 400, FileRefusedError),
    ("XMinioInvalidObjectName", 400, FileRefusedError),
    ("InvalidURI", 400, FileRefusedError),
    ("AccessDenied", 403, AccessDeniedError),
    ("Forbidden", 403, AccessDeniedError),
    ("AllAccessDisabled", 403, AccessDeniedError),
    ("403", 403, AccessDeniedError),
    ("NoSuchBucket", 404, StoreRefusedError),
    ("InvalidBucketName", 400, StoreRefusedError),
    ("PermanentRedirect", 301, StoreRefusedError),
    ("InvalidAccessKeyId", 403, StoreRefusedError),
    ("SignatureDoesNotMatch", 403, StoreRefusedError),
    ("AccountProblem", 403, StoreRefusedError),
    ("NotSignedUp", 403, StoreRefusedError),
    ("UserDisabled", 403, StoreRefusedError),
    ("QuotaExceeded", 403, StoreRefusedError),
    ("XMinioStorageFull", 507, StoreRefusedError),
    ("InsufficientCapacity", 503, StoreRefusedError),
    ("AuthorizationHeaderMalformed", 400, StoreRefusedError),
    ("IllegalLocationConstraintException", 400, StoreRefusedError),
    ("NotImplemented", 501, StoreRefusedError),
    ("MissingContentLength", 411, StoreRefusedError),
    ("InvalidStorageClass", 400, StoreRefusedError),
    ("InvalidEncryptionAlgorithmError", 400, StoreRefusedError),
    ("KMS.DisabledException", 400, StoreRefusedError),
    ("KMS.NotFoundException", 400, StoreRefusedError),
    ("KMS.KMSInvalidStateException", 400, StoreRefusedError),
    ("NoSuchKey", 404, NotFoundError),
    ("NoSuchVersion", 404, NotFoundError),
    ("NotFound", 404, NotFoundError),
    ("404", 404, NotFoundError),
    ("SomethingNew", 400, DoubtfulRefusalError),
    ("SomethingNew", 403, AccessDeniedError),
    ("SomethingNew", 503, ThrottledError),
    ("SomethingNew", 500, TryAgainError),
    ("SomethingNew", 599, TryAgainError),
    ("503", 503, ThrottledError),
]


@pytest.mark.parametrize(("code", "status", "kind"), S3_CODES)
def test_the_code_of_an_s3_answer_decides(code: str, status: int, kind: Kind) -> None:
    """Botocore's error is judged by the store's own code, where that says nothing by its status."""
    assert classify(answered(code, status))[0] is kind


@pytest.mark.parametrize(("code", "status", "kind"), S3_CODES)
def test_what_s3fs_makes_of_an_answer_is_judged_alike(code: str, status: int, kind: Kind) -> None:
    """s3fs raises PermissionError for an expired token and plain errnos for the rest: the answer below it decides."""
    assert classify(translate_boto_error(answered(code, status)))[0] is kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDenied", AccessDeniedError),
        ("404", NotFoundError),
        ("503", TryAgainError),
        ("KeyTooLongError", FileRefusedError),
    ],
)
def test_an_error_of_s3fs_without_its_answer_is_judged_by_its_errno(code: str, kind: Kind) -> None:
    """Where only the translated error is left, its class or errno decides."""
    assert classify(ERROR_CODE_TO_EXCEPTION[code]("words"))[0] is kind


OTHER_ANSWERS: list[tuple[Exception, Kind]] = [
    (gcs_answered(429, "rateLimitExceeded"), ThrottledError),
    (gcs_answered(403, "userRateLimitExceeded"), ThrottledError),
    (gcs_answered(503, "backendError"), TryAgainError),
    (gcs_answered(401, "authError"), CredentialsError),
    (gcs_answered(403, "forbidden"), AccessDeniedError),
    (gcs_answered(403, "insufficientPermissions"), AccessDeniedError),
    (gcs_answered(403, "quotaExceeded"), StoreRefusedError),
    (gcs_answered(403, "dailyLimitExceeded"), StoreRefusedError),
    (gcs_answered(403, "accountDisabled"), StoreRefusedError),
    (gcs_answered(400, "userProjectMissing"), StoreRefusedError),
    (gcs_answered(507, "insufficientStorage"), StoreRefusedError),
    (gcs_answered(404, "notFound", "The specified bucket does not exist."), StoreRefusedError),
    (gcs_answered(404, "notFound", "No such object: my-bucket/o"), NotFoundError),
    (GcsAnswerError(502, b"<html>bad gateway</html>", {}), TryAgainError),
    (GcsAnswerError(400, b"", {}), DoubtfulRefusalError),
    (gcsfs_raises(403), AccessDeniedError),
    (gcsfs_raises(404), NotFoundError),
    (gcsfs_raises(401), CredentialsError),
    (gcsfs_raises(408), TryAgainError),
    (gcsfs_raises(429), ThrottledError),
    (gcsfs_raises(500), TryAgainError),
    (gcsfs_raises(502), TryAgainError),
    (gcsfs_raises(503), ThrottledError),
    (gcsfs_raises(503, b"plain text"), ThrottledError),
    (gcsfs_raises(400, b'{"error":{"message":"other"}}'), DoubtfulRefusalError),
    (HttpError({"code": 503, "message": "words"}), ThrottledError),
    (HttpError({"code": "504", "message": "words"}), TryAgainError),
    (HttpError({"message": "words"}), TryAgainError),
    (HttpError(), TryAgainError),
    (ChecksumError("words"), TryAgainError),
    (google_errors.RefreshError("words"), CredentialsError),
    (google_errors.DefaultCredentialsError("words"), CredentialsError),
    (google_errors.TransportError("words"), TryAgainError),
    (google_api_errors.ServiceUnavailable("words"), ThrottledError),
    (google_api_errors.Forbidden("words"), AccessDeniedError),
    (google_api_errors.NotFound("words"), NotFoundError),
    (google_api_errors.DeadlineExceeded("words"), TryAgainError),
    (azure_answered(503, "ServerBusy"), ThrottledError),
    (azure_answered(404, "ContainerNotFound"), StoreRefusedError),
    (azure_answered(404, "BlobNotFound"), NotFoundError),
    (azure_answered(403, "AccountIsDisabled"), StoreRefusedError),
    (azure_answered(403, "AuthenticationFailed"), CredentialsError),
    (azure_answered(401, "InvalidAuthenticationInfo"), CredentialsError),
    (azure_answered(401, "NoAuthenticationInformation"), CredentialsAbsentError),
    (azure_answered(403, "AuthorizationPermissionMismatch"), AccessDeniedError),
    (azure_answered(400, "Md5Mismatch"), TryAgainError),
    (azure_answered(400, "InvalidMd5"), TryAgainError),
    (azure_answered(400, "InvalidBlockList"), TryAgainError),
    (azure_answered(400, "InvalidBlobOrBlock"), TryAgainError),
    (azure_answered(409, "ContainerBeingDeleted"), TryAgainError),
    (azure_answered(403, "ContainerDisabled"), StoreRefusedError),
    (azure_answered(409, "PublicAccessNotPermitted"), StoreRefusedError),
    (azure_answered(403, "KeyBasedAuthenticationNotPermitted"), StoreRefusedError),
    (azure_answered(409, "BlobImmutableDueToPolicy"), FileRefusedError),
    (azure_answered(409, "BlobArchived"), FileRefusedError),
    (azure_answered(409, "InvalidBlobType"), FileRefusedError),
    (azure_answered(403), AccessDeniedError),
    (azure_errors.ResourceNotFoundError("words"), NotFoundError),
    (azure_errors.ClientAuthenticationError("words"), CredentialsError),
    (CredentialUnavailableError("words"), CredentialsAbsentError),
    (azure_errors.ServiceRequestError("words"), TryAgainError),
    (azure_errors.ServiceResponseError("words"), TryAgainError),
]


@pytest.mark.parametrize(("error", "kind"), OTHER_ANSWERS, ids=repr)
def test_other_stores_answers_are_sorted(error: Exception, kind: Kind) -> None:
    """Google's reasons, gcsfs's translated errors and Azure's codes are judged as S3's are."""
    assert classify(error)[0] is kind


FAILURES: list[tuple[Exception, Kind]] = [
    (boto_errors.EndpointConnectionError(endpoint_url="http://host"), TryAgainError),
    (boto_errors.ConnectTimeoutError(endpoint_url="http://host"), TryAgainError),
    (boto_errors.ReadTimeoutError(endpoint_url="http://host"), TryAgainError),
    (boto_errors.ConnectionClosedError(endpoint_url="http://host"), TryAgainError),
    (boto_errors.HTTPClientError(error="words"), TryAgainError),
    (boto_errors.SSLError(endpoint_url="http://host", error="words"), TryAgainError),
    (boto_errors.ProxyConnectionError(proxy_url="http://host"), TryAgainError),
    (boto_errors.ResponseStreamingError(error="words"), TryAgainError),
    (boto_errors.IncompleteReadError(actual_bytes=1, expected_bytes=2), TryAgainError),
    (boto_errors.FlexibleChecksumError(error_msg="words"), TryAgainError),
    (boto_errors.NoCredentialsError(), CredentialsAbsentError),
    (boto_errors.PartialCredentialsError(provider="p", cred_var="v"), CredentialsError),
    (boto_errors.CredentialRetrievalError(provider="p", error_msg="words"), CredentialsError),
    (boto_errors.TokenRetrievalError(provider="p", error_msg="words"), CredentialsError),
    (boto_errors.UnauthorizedSSOTokenError(), CredentialsError),
    (boto_errors.ProfileNotFound(profile="p"), StoreRefusedError),
    (boto_errors.NoRegionError(), StoreRefusedError),
    (boto_errors.InvalidRegionError(region_name="r"), StoreRefusedError),
    (boto_errors.InvalidEndpointDiscoveryConfigurationError(config_value="v"), StoreRefusedError),
    (boto_errors.UnknownServiceError(service_name="s", known_service_names="t"), StoreRefusedError),
    (boto_errors.ParamValidationError(report='Invalid bucket name "a b"'), StoreRefusedError),
    (aiohttp.ServerDisconnectedError(), TryAgainError),
    (aiohttp.ServerTimeoutError(), TryAgainError),
    (aiohttp.ClientPayloadError("words"), TryAgainError),
    (aiohttp.ClientOSError(errno.ECONNRESET, "reset"), TryAgainError),
    (aiohttp.ClientConnectorError(SOCKET, OSError(errno.ECONNREFUSED, "refused")), TryAgainError),
    (aiohttp.ClientConnectorError(SOCKET, OSError(errno.EACCES, "blocked")), TryAgainError),
    (aiohttp.ClientConnectorCertificateError(SOCKET, ssl.SSLCertVerificationError("words")), TryAgainError),
    (requests.exceptions.ConnectionError("words"), TryAgainError),
    (requests.exceptions.ProxyError(), TryAgainError),
    (TimeoutError(), DeadlineError),
    (TimeoutError(errno.ETIMEDOUT, "timed out"), DeadlineError),
    (socket.gaierror(socket.EAI_NONAME, "unknown host"), TryAgainError),
    (RuntimeError("Session is closed"), TryAgainError),
    (ValueError("Bad Request: bucket/object"), TryAgainError),
    (Exception("nobody knows"), TryAgainError),
]


@pytest.mark.parametrize(("error", "kind"), FAILURES, ids=repr)
def test_failures_without_an_answer_are_sorted_by_their_class(error: Exception, kind: Kind) -> None:
    """Half of what passes is no OSError, and what nobody knows is tried again."""
    assert classify(error)[0] is kind


ERRNO_ROWS: list[tuple[int, Kind]] = [
    (errno.ENOSPC, StoreRefusedError),
    (errno.EDQUOT, StoreRefusedError),
    (errno.EROFS, StoreRefusedError),
    (errno.ENOTDIR, StoreRefusedError),
    (errno.ELOOP, StoreRefusedError),
    (errno.EACCES, AccessDeniedError),
    (errno.EPERM, AccessDeniedError),
    (errno.ENAMETOOLONG, FileRefusedError),
    (errno.EFBIG, FileRefusedError),
    (errno.EISDIR, FileRefusedError),
    (errno.EILSEQ, FileRefusedError),
    (errno.ENOENT, NotFoundError),
    (errno.EIO, TryAgainError),
    (errno.ESTALE, TryAgainError),
    (errno.ECONNRESET, TryAgainError),
    (errno.EPIPE, TryAgainError),
    (errno.EMFILE, TryAgainError),
    (errno.EBUSY, TryAgainError),
    (errno.EINVAL, TryAgainError),
]


@pytest.mark.parametrize(("number", "kind"), ERRNO_ROWS)
def test_a_file_systems_errors_are_sorted_by_errno(number: int, kind: Kind) -> None:
    """A full, read-only or missing file system is the store's state; a name or a size is the file's."""
    assert classify(OSError(number, "words"))[0] is kind


def test_errors_without_an_errno_are_sorted_by_their_class() -> None:
    """Libraries raise built-in errors with a sentence only."""
    assert classify(FileNotFoundError("no such thing"))[0] is NotFoundError
    assert classify(PermissionError("words"))[0] is AccessDeniedError


STATUS_ROWS: list[tuple[int, Kind]] = [
    (301, StoreRefusedError),
    (307, TryAgainError),
    (400, DoubtfulRefusalError),
    (401, CredentialsError),
    (403, AccessDeniedError),
    (404, NotFoundError),
    (408, TryAgainError),
    (409, TryAgainError),
    (413, FileRefusedError),
    (414, FileRefusedError),
    (405, DoubtfulRefusalError),
    (418, DoubtfulRefusalError),
    (425, TryAgainError),
    (429, ThrottledError),
    (500, TryAgainError),
    (501, StoreRefusedError),
    (502, TryAgainError),
    (503, ThrottledError),
    (504, TryAgainError),
    (507, StoreRefusedError),
    (520, TryAgainError),
]


@pytest.mark.parametrize(("status", "kind"), STATUS_ROWS)
def test_a_bare_status_is_sorted(status: int, kind: Kind) -> None:
    """An answer without a code is judged by its status, whoever carries it."""
    request = RequestInfo(URL("http://host"), "PUT", CIMultiDictProxy(CIMultiDict()), URL("http://host"))
    assert classify(aiohttp.ClientResponseError(request, (), status=status))[0] is kind
    assert classify(GcsAnswerError(status, b"", {}))[0] is kind


def test_every_row_of_the_tables_is_tested() -> None:
    """A row that is added without a test here fails this one."""
    codes = {code for code, _, _ in S3_CODES}
    codes |= {
        str(getattr(error, "response", {})["Error"]["Code"])
        for error, _ in OTHER_ANSWERS
        if type(error) is GcsAnswerError
    }
    codes |= {str(getattr(error, "error_code", None)) for error, _ in OTHER_ANSWERS}
    assert set(CODES) <= codes
    assert set(STATUSES) <= {status for status, _ in STATUS_ROWS}
    assert set(ERRNOS) <= {number for number, _ in ERRNO_ROWS}
    errors = [error for error, _ in [*OTHER_ANSWERS, *FAILURES]]
    assert set(CLASSES) <= {base.__name__ for error in errors for base in type(error).__mro__}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_pause_that_a_store_asks_for_is_carried_along(headers: dict[str, str], seconds: float | None) -> None:
    """Retry-After is read from any client's headers, in seconds; nonsense is ignored."""
    assert classify(answered("SlowDown", 503, headers))[1] == seconds
    assert classify(GcsAnswerError(503, b"", CIMultiDict(headers)))[1] == seconds


def raised_by(error: BaseException, operation: str = "put", *secrets: str) -> StoreError:
    redact = Redactor({"secrets": list(secrets)}, {})
    with pytest.raises(StoreError) as caught, translating(operation, "tr_a.json.zst", redact):
        raise error
    return caught.value


def test_the_translated_error_says_what_was_asked() -> None:
    """Operation, key, the store's words and the pause are there, and the original as its cause."""
    original = answered("SlowDown", 503, {"retry-after": "3"})
    error = raised_by(original)
    assert isinstance(error, ThrottledError)
    assert (error.operation, error.key, error.retry_after_s) == ("put", "tr_a.json.zst", 3.0)
    assert "words" in error.reason
    assert error.__cause__ is original


def test_the_reason_is_one_line_of_bounded_length() -> None:
    """What a log gets is one line, however much a store says; what says nothing is named by its class."""
    assert raised_by(OSError("Forbidden: a\nb\r\nc")).reason == "Forbidden: a b c"
    assert len(raised_by(OSError("x" * 10_000)).reason) == MAX_REASON_CHARS
    assert raised_by(aiohttp.ClientPayloadError()).reason == "ClientPayloadError"


def test_no_secret_is_in_the_error_or_in_what_a_traceback_shows() -> None:
    """What had to be redacted has no cause that would tell it after all."""
    error = raised_by(answered("AccessDenied", 403, message="the key CANARY-1 is not known"), "put", "CANARY-1")
    assert "CANARY" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_what_is_missing_when_writing_is_the_place() -> None:
    """A write that finds nothing there has no bucket to write to; a read has no object."""
    assert type(raised_by(FileNotFoundError("b"), "put")) is StoreRefusedError
    assert type(raised_by(FileNotFoundError("b"), "get")) is NotFoundError


@pytest.mark.parametrize("error", [TryAgainError("get", "k", "r"), RecordChangedError("changed")])
def test_our_own_errors_pass_as_they_are(error: Exception) -> None:
    """A record that changes while it is sent is no failure of the store."""
    with pytest.raises(type(error)) as caught, translating("put", "k", said_nothing):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    "error", [TypeError("x"), AttributeError("x"), AssertionError(), MemoryError(), KeyboardInterrupt()]
)
def test_mistakes_of_a_program_are_no_answers_of_a_store(error: BaseException) -> None:
    """A bug is not retried as if a store had said something."""
    with pytest.raises(type(error)), translating("put", "k", said_nothing):
        raise error


def test_options_that_a_library_does_not_know_refuse_the_store() -> None:
    """A misspelt storage option is said once, for the store, and not once a file as a bug."""
    redact = Redactor({"secret": "CANARY-1"}, {})
    with (
        pytest.raises(StoreRefusedError, match="storage_options: unknown 'endpint'") as caught,
        opening(redact),
    ):
        raise TypeError("unknown 'endpint' \n CANARY-1")
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "AioSession.__init__() got an unexpected keyword argument 'endpint'",
            "the store's library knows no storage option 'endpint': correct its name, or leave it out",
        ),
        ("Invalid endpoint: 10.0.0.1:9000", "'10.0.0.1:9000' is no URL: write http://HOST:PORT or https://HOST"),
    ],
)
def test_the_option_that_is_wrong_is_named(text: str, sentence: str) -> None:
    """The user reads what to correct, not the name of a library's function."""
    kind = ValueError if text.startswith("Invalid") else TypeError
    with pytest.raises(StoreRefusedError) as caught, opening(said_nothing):
        raise kind(text)
    assert caught.value.reason.endswith(sentence)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (answered("NoSuchBucket", 404), "words (NoSuchBucket): create the bucket, or correct the URL"),
        (answered("InvalidAccessKeyId", 403), "words (InvalidAccessKeyId): check the access key and its secret"),
        (answered("SomethingNew", 400), "words (SomethingNew)"),
        (
            boto_errors.NoCredentialsError(),
            "Unable to locate credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        (
            boto_errors.ParamValidationError(report='Invalid bucket name "b b": must match a regex'),
            'Invalid bucket name "b b": correct the bucket\'s name in the URL',
        ),
        (
            NotADirectoryError(errno.ENOTDIR, "Not a directory", f"/a/file/x/.{'0f' * 12}.tmp"),
            "Not a directory (/a/file/x): a part of this path is a file, correct it",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/a/x/_receipts"),
            "Read-only file system (/a/x/_receipts): make it writable, or name another place",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "The token has expired"), "The token has expired"),
    ],
    ids=repr,
)
def test_the_reason_is_the_stores_words_and_what_to_do(error: Exception, sentence: str) -> None:
    """Without the frame that a library puts around them, the number of an error or the name of a temporary file."""
    assert raised_by(error).reason == sentence


def test_errors_that_point_at_each_other_end() -> None:
    """A chain of causes that goes in a circle is followed once."""
    first, second = Exception("a"), Exception("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first) == (TryAgainError, None)
