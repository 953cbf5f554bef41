"""Foreign errors become ours, sorted by what to do next: tables of codes, statuses, names and errnos.

"It is an OSError" is no test: half of what passes is not one, and s3fs turns an expired token into a PermissionError.
So an error is judged by the most telling thing that it carries: the store's own code, then the HTTP status, then its
class, then its errno. What nobody knows is tried again: late is better than lost.
"""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from mirror.errors import (
    AccessDeniedError,
    CredentialsAbsentError,
    CredentialsError,
    DeadlineError,
    DoubtfulRefusalError,
    FileRefusedError,
    MirrorError,
    NotFoundError,
    StoreError,
    StoreRefusedError,
    ThrottledError,
    TryAgainError,
)
from mirror.stores.words import about_options, in_words, names_of_errno, of_file_system

Kind = type[StoreError]

# The store's own words: the error codes of S3 and Azure, and the `reason` of Google's errors.
CODES: Mapping[str, Kind] = {
    **dict.fromkeys(
        ["SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded"],
        ThrottledError,
    ),
    **dict.fromkeys(["TooManyRequests", "TooManyRequestsException", "BandwidthLimitExceeded"], ThrottledError),
    **dict.fromkeys(["rateLimitExceeded", "userRateLimitExceeded", "ServerBusy"], ThrottledError),
    **dict.fromkeys(["RequestTimeout", "InternalError", "ServiceUnavailable", "OperationAborted"], TryAgainError),
    **dict.fromkeys(["ConditionalRequestConflict", "TemporaryRedirect", "OperationTimedOut"], TryAgainError),
    "NoSuchUpload": TryAgainError,  # an aborted multipart upload: begun again from its start
    **dict.fromkeys(["BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"], TryAgainError),
    **dict.fromkeys(["IncompleteBody", "InvalidDigest", "RequestTimeoutException", "backendError"], TryAgainError),
    **dict.fromkeys(["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "authError"], CredentialsError),
    **dict.fromkeys(["RequestTimeTooSkewed", "RequestExpired", "InvalidToken"], CredentialsError),
    "400": CredentialsError,  # the answer to a HEAD has no body: so S3 answers one with an expired token
    **dict.fromkeys(["KeyTooLong", "KeyTooLongError", "EntityTooLarge", "EntityTooSmall"], FileRefusedError),
    **dict.fromkeys(["InvalidObjectName", "XMinioInvalidObjectName", "InvalidURI"], FileRefusedError),
    **dict.fromkeys(["AccessDenied", "Forbidden", "AllAccessDisabled", "forbidden"], AccessDeniedError),
    **dict.fromkeys(["NoSuchBucket", "InvalidBucketName", "ContainerNotFound", "PermanentRedirect"], StoreRefusedError),
    **dict.fromkeys(["InvalidAccessKeyId", "SignatureDoesNotMatch", "AccountProblem"], StoreRefusedError),
    **dict.fromkeys(["QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity", "NotSignedUp"], StoreRefusedError),
    **dict.fromkeys(["UserDisabled", "AccountIsDisabled", "accountDisabled", "userProjectMissing"], StoreRefusedError),
    **dict.fromkeys(["quotaExceeded", "dailyLimitExceeded", "insufficientStorage"], StoreRefusedError),
    # What is wrong with every request: a region, a header, a storage class or a key that the settings ask for.
    **dict.fromkeys(["AuthorizationHeaderMalformed", "IllegalLocationConstraintException"], StoreRefusedError),
    **dict.fromkeys(["NotImplemented", "MissingContentLength", "InvalidStorageClass"], StoreRefusedError),
    **dict.fromkeys(["InvalidEncryptionAlgorithmError", "KMS.DisabledException"], StoreRefusedError),
    **dict.fromkeys(["KMS.NotFoundException", "KMS.KMSInvalidStateException"], StoreRefusedError),
    # Azure's: a key that is not this account's, an expired token, an expired signature and a wrong clock sound alike.
    **dict.fromkeys(["AuthenticationFailed", "InvalidAuthenticationInfo"], CredentialsError),
    "NoAuthenticationInformation": CredentialsAbsentError,
    **dict.fromkeys(["Md5Mismatch", "InvalidMd5", "InvalidBlockList", "InvalidBlobOrBlock"], TryAgainError),
    **dict.fromkeys(["ContainerDisabled", "PublicAccessNotPermitted"], StoreRefusedError),
    "KeyBasedAuthenticationNotPermitted": StoreRefusedError,
    **dict.fromkeys(["BlobImmutableDueToPolicy", "BlobArchived", "InvalidBlobType"], FileRefusedError),
    **dict.fromkeys(["NoSuchKey", "NoSuchVersion", "NotFound", "notFound", "BlobNotFound"], NotFoundError),
}

STATUSES: Mapping[int, Kind] = {
    **dict.fromkeys([307, 408, 409, 425, 500, 502, 504], TryAgainError),
    **dict.fromkeys([429, 503], ThrottledError),
    401: CredentialsError,
    403: AccessDeniedError,
    404: NotFoundError,
    **dict.fromkeys([413, 414], FileRefusedError),
    **dict.fromkeys([301, 501, 507], StoreRefusedError),
}

# Classes by name, so that no SDK has to be imported to recognise its errors; the nearest base that is named decides.
CLASSES: Mapping[str, Kind] = {
    "NoCredentialsError": CredentialsAbsentError,
    **dict.fromkeys(["PartialCredentialsError", "CredentialRetrievalError"], CredentialsError),
    **dict.fromkeys(["RefreshError", "DefaultCredentialsError", "TokenRetrievalError", "SSOError"], CredentialsError),
    "CredentialUnavailableError": CredentialsAbsentError,
    **dict.fromkeys(["ClientAuthenticationError", "UnauthorizedSSOTokenError"], CredentialsError),
    **dict.fromkeys(["EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError"], TryAgainError),
    **dict.fromkeys(["ConnectionClosedError", "HTTPClientError", "ResponseStreamingError"], TryAgainError),
    **dict.fromkeys(["ServerDisconnectedError", "ClientPayloadError", "ClientOSError", "ClientError"], TryAgainError),
    **dict.fromkeys(["ProxyError", "IncompleteReadError", "RequestException", "SSLError"], TryAgainError),
    **dict.fromkeys(["ChecksumError", "FlexibleChecksumError"], TryAgainError),
    **dict.fromkeys(["ServiceRequestError", "ServiceResponseError"], TryAgainError),
    "TimeoutError": DeadlineError,
    "ProfileNotFound": StoreRefusedError,
    "NoRegionError": StoreRefusedError,
    "InvalidRegionError": StoreRefusedError,
    "UnknownServiceError": StoreRefusedError,
    "InvalidEndpointDiscoveryConfigurationError": StoreRefusedError,
    "ParamValidationError": StoreRefusedError,  # a bucket's name or an option that no request can carry
    "ResourceNotFoundError": NotFoundError,
}

ERRNOS: Mapping[int, Kind] = {
    **dict.fromkeys([errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR, errno.ELOOP], StoreRefusedError),
    **dict.fromkeys([errno.EACCES, errno.EPERM], AccessDeniedError),
    **dict.fromkeys([errno.ENAMETOOLONG, errno.EFBIG, errno.EISDIR, errno.EILSEQ], FileRefusedError),
    errno.ENOENT: NotFoundError,
}

# A mistake in a program is not an answer of a store.
BUGS = (TypeError, AttributeError, NameError, AssertionError, ImportError, IndexError, MemoryError)


@contextlib.contextmanager
def translating(operation: str, key: str, redact: Callable[[str], str]) -> Iterator[None]:
    """Raise what a driver's library raises as a StoreError that says what to do next, without secrets.

    What is ours already, such as a record that changed while it was sent, passes as it is.

    Raises:
        StoreError: the foreign error, translated.
    """
    try:
        yield
    except (MirrorError, *BUGS):
        raise
    except Exception as error:
        translated = translate(error, operation, key, redact)
        if all(redact(told) == told for told in _all_told(error)):
            raise translated from error
        raise_alone(translated)


def raise_alone(error: Exception) -> NoReturn:
    """Raise an error without the one that is being handled: that may hold what was redacted.

    ``from None`` hides it from tracebacks, and leaves it to whoever looks for it.
    """
    try:
        raise error from None  # noqa: TRY301 - to take away what it would carry along
    except Exception:
        error.__context__ = None
        raise


def _all_told(error: BaseException) -> Iterator[str]:
    """Yield whatever a traceback or a collector of errors shows of an error and of those that it came from."""
    seen: set[int] = set()
    links = [error]
    while links:
        link = links.pop()
        if id(link) not in seen:
            seen.add(id(link))
            yield from (str(link), repr(link))
            links += [before for before in (link.__cause__, link.__context__) if before is not None]


@contextlib.contextmanager
def opening(redact: Callable[[str], str]) -> Iterator[None]:
    """Raise what a library raises for options that it does not take as a store that nobody can use so.

    Raises:
        StoreRefusedError: the store cannot be opened until somebody changes its options.
    """
    try:
        yield
    except (ValueError, *BUGS) as error:
        raise_alone(StoreRefusedError("open", "", about_options(redact(_one_line(error)))))


def translate(error: BaseException, operation: str, key: str, redact: Callable[[str], str]) -> StoreError:
    """Return the error of our own tree that ``error`` stands for."""
    kind, retry_after_s = classify(error)
    if kind is NotFoundError and operation == "put":
        kind = StoreRefusedError  # what is missing is the place to put it
    reason = in_words(redact(_one_line(error)), _names_of(error))
    if issubclass(kind, TryAgainError):
        return kind(operation, key, reason, retry_after_s)
    return kind(operation, key, reason)


def _names_of(error: BaseException) -> Iterator[str]:
    for link in _chain(error):
        answer = _answer_of(link)
        if answer is not None:
            yield str(answer[0])
        else:
            if isinstance(link, OSError):
                yield from names_of_errno(link)
            yield from (base.__name__ for base in type(link).__mro__)


def classify(error: BaseException) -> tuple[Kind, float | None]:
    """Decide what to do next about a foreign error: its kind, and the pause in seconds that the store asks for."""
    links = list(_chain(error))
    for link in links:
        answer = _answer_of(link)
        if answer is not None:
            code, status, headers = answer
            return of_answer(code, status), retry_after(headers)
    names = [base.__name__ for link in links for base in type(link).__mro__]
    by_class = next((CLASSES[name] for name in names if name in CLASSES), None)
    return by_class or _by_errno(error), None


def _answer_of(error: BaseException) -> tuple[object, object, object] | None:
    """Return code, status and headers of the answer that an error stands for; None if it stands for none."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and isinstance(response.get("Error"), Mapping):  # botocore's ClientError
        metadata = response.get("ResponseMetadata") or {}
        return response["Error"].get("Code"), metadata.get("HTTPStatusCode"), metadata.get("HTTPHeaders")
    if any(base.__name__ == "HttpProcessingError" for base in type(error).__mro__):
        return None  # aiohttp's word for an answer that broke off, with a status that nobody answered
    status = next((value for name in ("status", "status_code", "code") if (value := getattr(error, name, None))), None)
    if not _is_status(status):
        return None
    code = getattr(error, "error_code", None)  # Azure's, an enumeration
    return getattr(code, "value", code), status, getattr(error, "headers", None) or getattr(response, "headers", None)


def _by_errno(error: BaseException) -> Kind:
    if isinstance(error, OSError) and error.errno in ERRNOS:
        return ERRNOS[error.errno or 0]
    if isinstance(error, FileNotFoundError):
        return NotFoundError
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and str(error).startswith("Forbidden: ")):
        return AccessDeniedError  # the latter is how gcsfs says 403
    return TryAgainError


def of_answer(code: object, status: object) -> Kind:
    """Judge an HTTP answer by the store's code and, where that says nothing, by its status."""
    if isinstance(code, str) and code in CODES:
        return CODES[code]
    number = int(str(status)) if _is_status(status) else int(code) if isinstance(code, str) and _is_status(code) else 0
    if number in STATUSES:
        return STATUSES[number]
    if 400 <= number < 500:  # noqa: PLR2004 - HTTP's own classes
        return DoubtfulRefusalError
    return TryAgainError


def retry_after(headers: object) -> float | None:
    """Read ``Retry-After`` as seconds; None when absent, a date, or out of range."""
    if not hasattr(headers, "get"):
        return None
    value = headers.get("Retry-After") or headers.get("retry-after")
    try:
        seconds = float(value) if value is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


def _one_line(error: BaseException) -> str:
    text = of_file_system(error) if isinstance(error, OSError) else str(error)
    return " ".join(text.split()) or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _is_status(value: object) -> bool:
    return str(value).isdecimal() and 300 <= int(str(value)) < 600  # noqa: PLR2004 - HTTP's own range
