"""What loaders, readers and the server say to each other, as values. Fields as in session.proto,
where they are explained (`pass_` is `pass` there)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from ..errors import Error, invalid

MAX_NUMBER = 1 << 62
MAX_COUNT = 1 << 16
MAX_NAME_BYTES = 128
MAX_STATE_BYTES = 64 << 10  # of a loader's state
MAX_STREAMS = 64
DEFAULT_STEP_BYTES = 64 << 20


class StepAddress(NamedTuple):
    stream: str
    pass_: int
    step: int

    def __str__(self) -> str:
        return f"step {self.step} of data stream '{self.stream}' pass {self.pass_}"


class LoaderState(NamedTuple):
    """What a loader needs in order to go on behind `step`; opaque, at most 64 KiB."""

    step: int
    state: bytes


@dataclasses.dataclass
class ResumeState:
    """Of a step N: of every loader its latest state at or before N."""

    num_loaders: int = 0
    loaders: dict[int, LoaderState] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StepTotals:
    """Counted before the cut over all microbatches of a step. None: some batch does not tell."""

    num_microbatches: int
    num_label_tokens: int | None = None
    num_tokens_excl_tail_pad: int | None = None


# --- readers --------------------------------------------------------------------------------------


@dataclasses.dataclass
class ReaderStream:
    name: str
    pass_: int = 0
    next_step: int = 0
    received: int | None = None  # None: no step of the pass
    closed: bool = False
    finished: bool = False
    max_step_bytes: int = DEFAULT_STEP_BYTES
    resume: ResumeState | None = None


@dataclasses.dataclass
class OpenSession:
    """`options`: a ShardingOptions message. `executor`: of the terms that a generation agrees on,
    as they all are up to `resume`."""

    group: str
    generation: int = 1
    attempt: str = ""
    cp_size: int = 1
    readers_per_rank: int = 1
    options: Any = None
    fingerprint: str = ""
    job: str = ""
    job_groups: int = 1
    resume: dict[str, int] = dataclasses.field(default_factory=dict)
    reader: str = ""
    cp_rank: int = 0
    incarnation: int = 1
    streams: list[ReaderStream] = dataclasses.field(default_factory=list)
    executor: str = "auto"


@dataclasses.dataclass
class OpenedStream:
    name: str
    pass_: int = 0
    floor: int | None = None
    resume: ResumeState | None = None


@dataclasses.dataclass
class OpenedSession:
    generation: int
    streams: list[OpenedStream] = dataclasses.field(default_factory=list)
    instance: str = ""
    executor: str = ""


@dataclasses.dataclass(frozen=True)
class Want:
    id: int
    at: StepAddress


@dataclasses.dataclass(frozen=True)
class Commit:
    at: StepAddress


@dataclasses.dataclass(frozen=True)
class PassClosed:
    stream: str
    pass_: int
    finished: bool = False


@dataclasses.dataclass(frozen=True)
class DeliveryHead:
    id: int  # of the Want
    at: StepAddress
    microbatch: int = 0
    last: bool = True
    totals: StepTotals | None = None
    digest: int = 0
    owner: int = 0
    num_loaders: int = 1
    owner_state: bytes | None = None


# --- loaders --------------------------------------------------------------------------------------


@dataclasses.dataclass
class LoaderStream:
    name: str
    pass_: int = 0
    released: int = 0
    held_from: int = 0


@dataclasses.dataclass
class LoaderHello:
    group: str
    loader: int = 0
    num_loaders: int = 1
    incarnation: int = 1
    generation_seen: int = 0
    streams: list[LoaderStream] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class PushHead:
    at: StepAddress
    epoch: int
    microbatch: int
    last_microbatch: bool
    totals: StepTotals | None = None
    state: bytes | None = None


@dataclasses.dataclass(frozen=True)
class EndOfStream:
    stream: str
    pass_: int
    epoch: int
    end_step: int


@dataclasses.dataclass(frozen=True)
class Welcome:
    instance: str = ""


@dataclasses.dataclass(frozen=True)
class Position:
    generation: int
    stream: str
    pass_: int
    epoch: int
    from_step: int
    landed: tuple[int, ...] = ()
    state: LoaderState | None = None
    released: int = 0


@dataclasses.dataclass(frozen=True)
class LoaderCredit:
    at: StepAddress
    epoch: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Ack:
    """error: None: it is here, and stays until it is released."""

    at: StepAddress
    epoch: int
    microbatch: int = 0
    error: Error | None = None


@dataclasses.dataclass(frozen=True)
class Released:
    stream: str
    pass_: int
    epoch: int
    before: int


@dataclasses.dataclass(frozen=True)
class PassDone:
    stream: str
    pass_: int
    finished: bool = False


@dataclasses.dataclass(frozen=True)
class Drain:
    pass


LoaderNotice = Welcome | Position | LoaderCredit | Ack | Released | PassDone | Drain


# --- what no server takes -------------------------------------------------------------------------


def check_name(what: str, name: str) -> None:
    try:
        size = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        raise invalid(f"{what} is named {name!r}; names are strings, of Unicode") from None
    if not 1 <= size <= MAX_NAME_BYTES:
        raise invalid(f"{what} '{name[:32]}' has {size} bytes; 1 ... {MAX_NAME_BYTES} are possible")


def check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise invalid(f"{what} is {text!r}; text is possible")


def check_number(what: str, number: int, least: int = 0, most: int = MAX_NUMBER) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise invalid(f"{what} is {number!r}; {least} ... {most} are possible")


def check_open(opening: OpenSession) -> None:
    check_name("group", opening.group)
    check_name("reader", opening.reader)
    check_number("generation", opening.generation)
    check_number("cp_size", opening.cp_size, 1, MAX_COUNT)
    check_number("cp_rank", opening.cp_rank, 0, opening.cp_size - 1)
    check_number("readers_per_rank", opening.readers_per_rank, 1, MAX_COUNT)
    check_number("job_groups", opening.job_groups, 1, MAX_COUNT)
    check_number("incarnation", opening.incarnation)
    for what, text in (("fingerprint", opening.fingerprint), ("job", opening.job),
                       ("attempt", opening.attempt)):
        check_text(what, text)
    check_streams([stream.name for stream in opening.streams])
    for stream in opening.streams:
        check_number(f"max_step_bytes of '{stream.name}'", stream.max_step_bytes, 1, 1 << 50)


def check_hello(hello: LoaderHello) -> None:
    check_name("group", hello.group)
    check_number("num_loaders", hello.num_loaders, 1, MAX_COUNT)
    check_number("loader", hello.loader, 0, hello.num_loaders - 1)
    check_number("incarnation", hello.incarnation)
    check_number("generation", hello.generation_seen)
    check_streams([stream.name for stream in hello.streams])


def check_streams(names: list[str]) -> None:
    if not 1 <= len(names) <= MAX_STREAMS:
        raise invalid(f"{len(names)} data streams; 1 ... {MAX_STREAMS} are possible")
    for name in names:
        check_name("data stream", name)
    if len(set(names)) < len(names):
        raise invalid(f"data streams {names} are not all different")
