"""The error tree: every refusal has a code, an HTTP status and a way out.

    KernelError
    ├── Refused                     the caller can change something
    │   ├── InvalidInput            422  a field is wrong; `field` names it
    │   │   └── InvalidId           400  an id outside [A-Za-z0-9._:-]{1,128}
    │   ├── Unauthorized            401  no valid token
    │   ├── Forbidden               403  the token or the role does not allow it
    │   ├── NotFound                404  no such object for this caller
    │   ├── WrongMethod             405  the address answers to other methods
    │   ├── Conflict                409  the object is in another state or belongs to other content
    │   │   └── LostRace            409  a compare-and-set found another state or fence
    │   ├── Gone                    410  the body was purged after its retention
    │   ├── TooLarge                413  a body over its budget
    │   └── CapReached              402  admission would pass the account's cap
    ├── Unavailable                 503  try later: closing, migration missing, database away
    │   └── CommitOutcomeUnknown    503  the commit's acknowledgement was lost; read again by key
    ├── RetryTransaction            --   internal: run the whole transaction again
    └── PeerError                   502  an outgoing call (kernel/http)
        ├── NotSent                 502  proven: no byte of the request left this process
        │   └── AddressRefused      502  the dialled address is not allowed
        ├── OutcomeUnknown          502  the request may have reached the peer
        └── BodyError               502  the answer's body is not to be trusted
            ├── BodyTooLarge        502  more decoded bytes than the budget
            └── BodyBroken          502  truncated, stacked, unknown or invalid encoding

`code` is stable and documented; `message` is for people; `next_action` says the way out.
"""

from typing import Any, ClassVar


class KernelError(Exception):
    """Base of all errors this product raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    next_action: ClassVar[str] = ""

    def __init__(self, message: str, *, code: str = "", next_action: str = "", **details: Any):
        super().__init__(message)
        self.message = message
        self.error_code = code or self.code
        self.way_out = next_action or self.next_action
        self.details = details


class Refused(KernelError):
    code, status = "refused", 400


class InvalidInput(Refused):
    """A field is missing, of the wrong type or out of bounds. `field` names it."""

    code, status = "invalid_input", 422

    def __init__(self, message: str, *, field: str, **kwargs: Any):
        super().__init__(message, field=field, **kwargs)
        self.field = field


class InvalidId(InvalidInput):
    code, status = "invalid_id", 400


class Unauthorized(Refused):
    code, status = "unauthorized", 401
    next_action = "Send a valid token: Authorization: Bearer <token>."


class Forbidden(Refused):
    code, status = "forbidden", 403


class NotFound(Refused):
    code, status = "not_found", 404


class WrongMethod(Refused):
    code, status = "wrong_method", 405


class Conflict(Refused):
    code, status = "conflict", 409


class LostRace(Conflict):
    code = "changed_meanwhile"
    next_action = "Read the object again, then decide."


class Gone(Refused):
    code, status = "response_expired", 410


class TooLarge(Refused):
    code, status = "body_too_large", 413


class CapReached(Refused):
    code, status = "cap_reached", 402
    next_action = "Ask an operator to raise the cap, or wait until pending requests are settled."


class Unavailable(KernelError):
    code, status, retryable = "unavailable", 503, True
    next_action = "Repeat the same call with the same operation id."


class CommitOutcomeUnknown(Unavailable):
    code = "commit_outcome_unknown"


class RetryTransaction(KernelError):
    code, status, retryable = "contention", 503, True


class PeerError(KernelError):
    code, status = "peer_error", 502


class NotSent(PeerError):
    code = "not_sent"


class AddressRefused(NotSent):
    code = "address_refused"


class OutcomeUnknown(PeerError):
    code = "outcome_unknown"


class BodyError(PeerError):
    code = "body_error"


class BodyTooLarge(BodyError):
    code = "body_too_large"


class BodyBroken(BodyError):
    code = "body_broken"
