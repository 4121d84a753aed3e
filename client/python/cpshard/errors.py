"""What goes wrong, as exceptions: one class for each gRPC status code that cpshard uses, each of
them the Python kind as well (a refused batch is a ValueError)."""

from __future__ import annotations

from typing import Mapping

# gRPC's numbers.
CODES = {"CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4,
         "NOT_FOUND": 5, "ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8,
         "FAILED_PRECONDITION": 9, "ABORTED": 10, "OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12,
         "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15, "UNAUTHENTICATED": 16}
_NAMES = {number: name for name, number in CODES.items()}


class Error(Exception):
    """An error of the service, or of the library in its terms.

    code: name of the gRPC status code, "INVALID_ARGUMENT".
    message: the text; str(error) is the same.
    reason, values: for programs, where there are some: "BELOW_FLOOR", {"floor": "40"}
        (docs/WIRE.md, "What an error says to a program").
    retry_after: seconds after which the same may succeed; None: nothing says so.
    """

    def __init__(self, code: str, message: str, reason: str = "",
                 values: Mapping[str, str] | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.values: dict[str, str] = dict(values or {})
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}, {self.message!r})"

    def __reduce__(self) -> tuple[object, ...]:  # OSError has a way of its own
        return error_of, (self.code, self.message, self.reason, self.values, self.retry_after)

    def with_message(self, message: str) -> Error:
        """The same error with another text."""
        return error_of(self.code, message, self.reason, self.values, self.retry_after)


class InvalidArgument(Error, ValueError):
    """The batch, the options or an argument is wrong; the text names it."""


class Unimplemented(Error, NotImplementedError):
    """A layout or a combination that this version does not have."""


class FailedPrecondition(Error, RuntimeError):
    """What is there does not go together: options that differ, layouts of other batches."""


class NotFound(Error, KeyError):
    """No such stream, group or file."""


class DeadlineExceeded(Error, TimeoutError):
    """The time has passed; the text says what was waited for."""


class Unavailable(Error, ConnectionError):
    """The server cannot be reached, or is going down."""


_KINDS: dict[str, type[Error]] = {
    "INVALID_ARGUMENT": InvalidArgument, "UNIMPLEMENTED": Unimplemented,
    "FAILED_PRECONDITION": FailedPrecondition, "NOT_FOUND": NotFound,
    "DEADLINE_EXCEEDED": DeadlineExceeded, "UNAVAILABLE": Unavailable}


def error_of(code: str | int, message: str, reason: str = "",
             values: Mapping[str, str] | None = None, retry_after: float | None = None) -> Error:
    """The exception for a gRPC status code, by name or number."""
    name = _NAMES.get(code, "UNKNOWN") if isinstance(code, int) else code
    return _KINDS.get(name, Error)(name, message, reason, values, retry_after)


def invalid(message: str) -> Error:
    return error_of("INVALID_ARGUMENT", message)
