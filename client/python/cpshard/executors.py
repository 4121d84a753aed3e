"""Who shards at a server: as a caller names it, and as an answer does."""

from __future__ import annotations

from typing import Iterable

from .errors import Error, error_of, invalid

# Numbers of cpshard.v1.Executor. "auto" leaves it to the server, which says what it chose.
EXECUTORS = {"auto": 0, "cpu": 1, "cuda": 2}


def executor_number(executor: str) -> int:
    """InvalidArgument: it is none."""
    if not isinstance(executor, str) or executor not in EXECUTORS:
        raise invalid(f"executor {executor!r} is none of {', '.join(EXECUTORS)}")
    return EXECUTORS[executor]


def check_executor(asked: str, named: str) -> None:
    """FailedPrecondition: `named` is what a server says that it sharded with, and not what was
    asked for: one that does not know executors takes no notice of the choice."""
    if asked == "auto" or named.startswith(asked) or (asked == "cpu" and not named):
        return
    if not named:
        raise _is_older(asked)
    raise error_of("FAILED_PRECONDITION", f"executor {asked} was asked for, and the server has "
                   f"sharded with {named}; ask for auto, or another server")


def check_knows_executors(asked: str, capabilities: Iterable[str]) -> None:
    """FailedPrecondition: `asked` cannot be asked for of a server with these capabilities: it would
    shard everything, on the CPU, before its answer says so."""
    if asked == "cuda" and "executors" not in capabilities:
        raise _is_older(asked)


def _is_older(asked: str) -> Error:
    return error_of("FAILED_PRECONDITION", f"executor {asked} was asked for, and the server does "
                    "not say what it shards with: it is older than this choice; start a newer one, "
                    "or ask for auto")
