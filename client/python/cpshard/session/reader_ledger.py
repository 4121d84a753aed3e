"""A reader's side of a session as a state machine: what to ask for, what may be handed to the
trainer, what has been consumed, what a checkpoint has to hold. No threads, no gRPC, no clock.

    open_message -> on_opened -> take_requests (Want ...) -> on_delivery -> next -> next (commits
                                            the one before) ... disconnected -> open_message ...

Steps of a data stream leave next() strictly in order, each once, whatever the server does; what has
been received is not asked for again after a reconnect. A step that was handed out is not consumed
yet: after a restart of the process the trainer gets it again, from this object never.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Union

from ..errors import Error, error_of
from .incoming_stream import EndOfPass, IncomingStream, ReceivedShard, ReceivedStep, Request
from .messages import OpenedSession, OpenSession, ReaderStream, StepAddress, Want

MAX_WANTS = 64  # that may wait at a server at a time

__all__ = ["EndOfPass", "ReaderLedger", "ReceivedShard", "ReceivedStep", "Request"]


@dataclasses.dataclass
class _Asked:
    at: StepAddress
    next_microbatch: int = 0


def _end_in(error: Error) -> int | None:
    value = error.values.get("end_step", "")
    return int(value) if error.reason == "END_OF_STREAM" and value.isdigit() else None


def _is_postponement(error: Error) -> bool:
    """Something that time mends."""
    return error.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED") or error.reason == "PEER_LEFT"


class ReaderLedger:
    """Not thread-safe."""

    def __init__(self, opening: OpenSession, prefetch: int) -> None:
        """`opening` as of the checkpoint: streams with next_step and the resume state of next_step
        - 1. `prefetch`, at least 0: with step n being the next that next() returns, all up to n +
        prefetch are asked for."""
        self._opening = dataclasses.replace(opening, streams=[])
        self._streams = {stream.name: IncomingStream(stream) for stream in opening.streams}
        self._prefetch = prefetch
        self._opened = False
        self._asked: dict[int, _Asked] = {}  # Wants that are not answered, by id
        self._next_id = 1

    def _find(self, stream: str) -> IncomingStream:
        if stream not in self._streams:
            raise error_of("NOT_FOUND", f"this session was opened without a data stream '{stream}'")
        return self._streams[stream]

    # --- connection

    def open_message(self) -> OpenSession:
        """To open the session with, now. What is said here take_requests() does not say again."""
        opening = copy.copy(self._opening)
        opening.streams = [stream.state() for stream in self._streams.values()]
        for stream in self._streams.values():
            stream.told()
        return opening

    def on_opened(self, opened: OpenedSession) -> None:
        """The session is open, with the last open_message(). FailedPrecondition: the server's
        position cannot be."""
        if opened.generation != self._opening.generation:
            raise error_of("FAILED_PRECONDITION", f"group '{self._opening.group}': generation "
                           f"{self._opening.generation} was to be opened, and "
                           f"{opened.generation} was")
        for stream in opened.streams:
            if stream.name in self._streams:
                self._streams[stream.name].opened(stream)
        self.disconnected()
        self._opened = True

    def disconnected(self) -> None:
        """The connection is gone: requests that were not answered will be made again."""
        self._opened = False
        self._asked.clear()
        for stream in self._streams.values():
            stream.disconnected()

    # --- requests

    def take_requests(self) -> list[Request]:
        """What to send now, in this order: of wants those first that the trainer needs first, and
        never more than MAX_WANTS unanswered ones. Nothing while the session is not open."""
        if not self._opened:
            return []
        # What makes room at the server comes before what needs it.
        requests = [news for stream in self._streams.values() for news in stream.take_news()]
        for ahead in range(self._prefetch + 1):
            for name, stream in self._streams.items():
                if self._may_ask(ahead) and (step := stream.take_step(ahead)) is not None:
                    at = StepAddress(name, stream.pass_, step)
                    self._asked[self._next_id] = _Asked(at)
                    requests.append(Want(self._next_id, at))
                    self._next_id += 1
        return requests

    def _may_ask(self, ahead: int) -> bool:
        # The next step of every data stream can be asked for, whatever is prefetched.
        return len(self._asked) + (len(self._streams) if ahead else 0) < MAX_WANTS

    def postponed(self) -> bool:
        """Requests that failed for now and wait for ask_again(), or for the next on_opened()."""
        return any(stream.postponed for stream in self._streams.values())

    def ask_again(self) -> None:
        for stream in self._streams.values():
            stream.ask_again()

    # --- answers

    def on_delivery(self, received: ReceivedShard) -> None:
        """Internal: a delivery that was not asked for, out of its order, or that does not say what
        it has to. A repeated one, or of a pass that was left, is dropped."""
        head = received.head
        request = self._asked.get(head.id)
        if request is None:
            # Its request is answered, or of a pass that was left, or of a connection that is gone.
            if not 0 < head.id < self._next_id:
                raise error_of("INTERNAL", f"{head.at} came for request {head.id}, which was not "
                               "made")
            return
        if head.at != request.at:
            raise error_of("INTERNAL", f"request {head.id} is for {request.at}, and {head.at} came")
        if not 0 <= head.microbatch <= request.next_microbatch:
            raise error_of("INTERNAL", f"{head.at}: microbatch {head.microbatch} came before "
                           f"microbatch {request.next_microbatch}")
        if head.microbatch < request.next_microbatch:
            return
        self._find(request.at.stream).receive(received)
        request.next_microbatch += 1
        if head.last:
            del self._asked[head.id]

    def on_request_error(self, request_id: int, error: Error) -> None:
        """A request failed. Its step is asked for again where that may help; the end of the pass
        ends it; anything else is what next() raises from then on, behind what has been received."""
        request = self._asked.pop(request_id, None)
        if request is None:
            return
        stream, step = self._find(request.at.stream), request.at.step
        end = _end_in(error)
        if error.code == "DEADLINE_EXCEEDED":
            stream.ask_at_once(step)
        elif _is_postponement(error):
            stream.postpone(step)
        elif error.code == "OUT_OF_RANGE" and end is not None:
            stream.end(step, end)
        else:
            stream.fail(error)

    # --- the trainer

    def start_pass(self, stream: str) -> None:
        """Opens the data stream's pass if it is closed: a validation stream between two passes."""
        self._find(stream).start_pass()

    def ready(self, stream: str) -> bool:
        """Whether next() has something, be it an error. Who waits for it calls consumed() first: a
        server without room for another step makes room only then."""
        return self._find(stream).ready()

    def next(self, stream: str) -> Union[ReceivedStep, EndOfPass]:
        """The next step, and thereby the commit of the one before; or the end of the pass, as often
        as it is asked. Raises the error that stands in the way. Precondition: ready()."""
        return self._find(stream).next()

    def consumed(self, stream: str) -> None:
        """The trainer has consumed what next() returned last. Commits it."""
        self._find(stream).consume()

    def close_pass(self, stream: str, finished: bool) -> None:
        """Leaves the pass; the next one is opened by start_pass(). What was received is dropped. Of
        a data stream without an open pass only `finished` changes anything."""
        ours = self._find(stream)
        left = ours.pass_
        ours.close_pass(finished)
        if ours.pass_ != left:
            self._asked = {key: asked for key, asked in self._asked.items()
                           if asked.at.stream != stream}

    def state_of(self, stream: str) -> ReaderStream:
        """For the checkpoint: the first step not consumed, and what resumes there."""
        return self._find(stream).state()
