"""The messages of session.proto to and from the values of messages.py."""

from __future__ import annotations

from typing import Any

from .._proto import service_pb2, session_pb2
from ..channel import error_of_status
from ..errors import error_of
from ..executors import executor_number
from ..frames import read
from .messages import (Ack, Commit, DeliveryHead, Drain, EndOfStream, LoaderCredit, LoaderHello,
                       LoaderNotice, LoaderState, OpenedSession, OpenedStream, OpenSession,
                       PassClosed, PassDone, Position, PushHead, ReaderStream, Released,
                       ResumeState, StepAddress, StepTotals, Want, Welcome)
from .waiting import STALL_PARTS, Stall


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _pass(message: Any) -> int:
    return int(getattr(message, "pass"))  # a word of Python's


def _address_to(at: StepAddress) -> Any:
    return session_pb2.StepAddress(stream=at.stream, step=at.step, **{"pass": at.pass_})


def _address_of(at: Any) -> StepAddress:
    return StepAddress(at.stream, _pass(at), at.step)


def _microseconds(seconds: float) -> int:
    return max(int(seconds * 1e6), 0)


def _resume_to(resume: ResumeState, message: Any) -> None:
    message.num_loaders = resume.num_loaders
    for loader, state in resume.loaders.items():
        message.loaders[loader].step = state.step
        message.loaders[loader].state = state.state


def _resume_of(message: Any) -> ResumeState:
    return ResumeState(message.num_loaders, {loader: LoaderState(state.step, state.state)
                                             for loader, state in message.loaders.items()})


def _totals_to(totals: StepTotals | None) -> Any:
    if totals is None:
        return None
    return session_pb2.StepTotals(num_microbatches=totals.num_microbatches,
                                  num_label_tokens=totals.num_label_tokens,
                                  num_tokens_excl_tail_pad=totals.num_tokens_excl_tail_pad)


def _totals_of(totals: Any) -> StepTotals:
    return StepTotals(totals.num_microbatches, _optional(totals, "num_label_tokens"),
                      _optional(totals, "num_tokens_excl_tail_pad"))


# --- readers --------------------------------------------------------------------------------------


def encode_open(opening: OpenSession) -> bytes:
    """A serialised OpenSessionRequest."""
    request = session_pb2.OpenSessionRequest(
        group=opening.group, generation=opening.generation, attempt=opening.attempt,
        cp_size=opening.cp_size, readers_per_rank=opening.readers_per_rank, options=opening.options,
        fingerprint=opening.fingerprint, job=opening.job, job_groups=opening.job_groups,
        resume=opening.resume, reader=opening.reader, cp_rank=opening.cp_rank,
        incarnation=opening.incarnation, executor=executor_number(opening.executor))
    for stream in opening.streams:
        _reader_stream_to(stream, request.streams.add())
    return bytes(request.SerializeToString())


def _reader_stream_to(stream: ReaderStream, message: Any) -> None:
    message.name, message.next_step = stream.name, stream.next_step
    setattr(message, "pass", stream.pass_)
    if stream.received is not None:
        message.received = stream.received
    message.closed, message.finished = stream.closed, stream.finished
    message.max_step_bytes = stream.max_step_bytes
    if stream.resume is not None:
        message.resume.SetInParent()
        _resume_to(stream.resume, message.resume)


def decode_opened(reply: bytes) -> OpenedSession:
    """Of a serialised OpenSessionReply. Unimplemented: another hand-off than that in messages."""
    message, _ = read(session_pb2.OpenSessionReply, reply)
    if message.hand_off.mode != "inline":
        raise error_of("UNIMPLEMENTED", "the server hands shards over as "
                       f"'{message.hand_off.mode}'; this client knows 'inline'")
    streams = [OpenedStream(each.name, _pass(each), _optional(each, "floor"),
                            _resume_of(each.resume) if each.HasField("resume") else None)
               for each in message.streams]
    return OpenedSession(message.generation, streams, message.instance, message.executor)


def session_name(opening: OpenSession) -> Any:
    return session_pb2.SessionName(group=opening.group, generation=opening.generation,
                                   reader=opening.reader, incarnation=opening.incarnation)


def encode_close(opening: OpenSession) -> bytes:
    request = session_pb2.CloseSessionRequest(session=session_name(opening))
    return bytes(request.SerializeToString())


def encode_session(opening: OpenSession) -> bytes:
    """The first PullRequest of a connection."""
    return bytes(session_pb2.PullRequest(session=session_name(opening)).SerializeToString())


def encode_request(request: Want | Commit | PassClosed, timeout_ms: int, keys: list[str],
                   stall: Stall, elapsed: float) -> bytes:
    """A serialised PullRequest; the time and the keys are of a Want. Of a Commit: what the trainer
    has waited, in so many seconds, since the last one."""
    message = session_pb2.PullRequest()
    if isinstance(request, Want):
        message.want.id, message.want.timeout_ms = request.id, timeout_ms
        message.want.at.CopyFrom(_address_to(request.at))
        message.want.keys.extend(keys)
    elif isinstance(request, Commit):
        message.commit.at.CopyFrom(_address_to(request.at))
        message.commit.elapsed_us = _microseconds(elapsed)
        message.commit.stall.CopyFrom(session_pb2.StallTime(**{
            part: _microseconds(getattr(stall, part)) for part in STALL_PARTS}))
    else:
        message.pass_closed.CopyFrom(session_pb2.PassClosed(
            stream=request.stream, finished=request.finished, **{"pass": request.pass_}))
    return bytes(message.SerializeToString())


def delivery_of(frame: Any) -> DeliveryHead:
    """Of frame 0 of an answer."""
    head = frame.delivery
    return DeliveryHead(frame.batch_id, _address_of(head.at), head.microbatch, head.last,
                        _totals_of(head.totals) if head.HasField("totals") else None, head.digest,
                        head.owner, head.num_loaders, _optional(head, "owner_state"))


# --- loaders --------------------------------------------------------------------------------------


def encode_hello(hello: LoaderHello) -> bytes:
    """A serialised BatchFrame: the first of a connection."""
    message = session_pb2.LoaderHello(
        group=hello.group, loader=hello.loader, num_loaders=hello.num_loaders,
        incarnation=hello.incarnation, generation_seen=hello.generation_seen)
    for stream in hello.streams:
        message.streams.add(name=stream.name, released=stream.released, held_from=stream.held_from,
                            **{"pass": stream.pass_})
    return bytes(service_pb2.BatchFrame(hello=message).SerializeToString())


def encode_end(end: EndOfStream) -> bytes:
    """Likewise: the end of a data stream."""
    message = session_pb2.EndOfStream(stream=end.stream, epoch=end.epoch, end_step=end.end_step,
                                      **{"pass": end.pass_})
    return bytes(service_pb2.BatchFrame(end=message).SerializeToString())


def push_to(head: PushHead) -> Any:
    """The PushHead message. Its digest is left out: the server makes its own."""
    return session_pb2.PushHead(
        at=_address_to(head.at), epoch=head.epoch, microbatch=head.microbatch,
        last_microbatch=head.last_microbatch, totals=_totals_to(head.totals), state=head.state)


def decode_notice(message: bytes) -> LoaderNotice:
    """Of a serialised LoaderNotice. Internal: one that this client does not know."""
    notice, _ = read(session_pb2.LoaderNotice, message)
    kind = notice.WhichOneof("notice")
    value = getattr(notice, kind or "welcome")
    if kind == "welcome":
        return Welcome(value.instance)
    if kind == "position":
        state = None
        if value.HasField("state"):
            state = LoaderState(value.state.step, value.state.state)
        return Position(value.generation, value.stream, _pass(value), value.epoch, value.from_step,
                        tuple(value.landed), state, value.released)
    if kind == "credit":
        return LoaderCredit(_address_of(value.at), value.epoch, value.bytes)
    if kind == "ack":
        error = error_of_status(value.status) if value.HasField("status") else None
        return Ack(_address_of(value.at), value.epoch, value.microbatch, error)
    if kind == "released":
        return Released(value.stream, _pass(value), value.epoch, value.before)
    if kind == "pass_done":
        return PassDone(value.stream, _pass(value), value.finished)
    if kind == "drain":
        return Drain()
    raise error_of("INTERNAL", "the server sent a notice without a content that this client knows")
