"""Loaders and readers of sessions from a client's side, with generated stubs: what they send is
for the test to say, what they are told is kept."""

import queue
import threading
import time

import grpc

from streams import Answer, frames
from stubs import options_of, service_pb2, session_pb2

WAIT_SECONDS = 8
MAX_STEP_BYTES = 1 << 20
LAST_GENERATION = 1 << 40


def address_of(step, stream="train", pass_=0):
    at = session_pb2.StepAddress(stream=stream, step=step)
    setattr(at, "pass", pass_)
    return at


def reader_stream(name="train", next_step=0, received=None, max_step_bytes=MAX_STEP_BYTES,
                  resume=None, **fields):
    made = session_pb2.ReaderStream(name=name, next_step=next_step, max_step_bytes=max_step_bytes,
                                    **fields)
    if received is not None:
        made.received = received
    if resume is not None:
        made.resume.CopyFrom(resume)
    return made


def opening(options, cp_size=2, rank=0, group="g", generation=1, streams=None, incarnation=1,
            resume=None, **fields):
    """An OpenSessionRequest of the reader r<rank>."""
    return session_pb2.OpenSessionRequest(
        group=group, generation=generation, cp_size=cp_size, options=options_of(options),
        resume={"train": 0} if resume is None else resume, reader=f"r{rank}", cp_rank=rank,
        incarnation=incarnation, streams=streams or [reader_stream()], **fields)


def name_of(request):
    """The SessionName of what an OpenSessionRequest opens."""
    return session_pb2.SessionName(group=request.group, generation=request.generation,
                                   reader=request.reader, incarnation=request.incarnation)


class _Call:
    """A call of both directions whose messages are taken by a thread of its own."""

    begun = []  # calls of all tests, for end_sessions

    def __init__(self, method, first, timeout):
        self._out = queue.SimpleQueue()
        self.call = method(iter(self._out.get, None), timeout=timeout)
        self._change = threading.Condition()
        self.error = None  # how it ended
        self.ended = False
        self.send(first)
        _Call.begun.append(self)
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, *messages):
        for message in messages:
            self._out.put(message)

    def half_close(self):
        self._out.put(None)

    def cancel(self):
        self.call.cancel()
        self.half_close()

    def _read(self):
        try:
            for message in self.call:
                with self._change:
                    self._take(message)
                    self._change.notify_all()
        except grpc.RpcError as error:
            self.error = error
        with self._change:
            self.ended = True
            self._change.notify_all()

    def wait_for(self, condition, seconds=WAIT_SECONDS, what="what was waited for"):
        """Until condition() is true, which is returned; AssertionError: not in time."""
        end = time.monotonic() + seconds
        with self._change:
            while not (found := condition()):
                if not self._change.wait(end - time.monotonic()):
                    raise AssertionError(f"{what} did not come: {self.error or self.describe()}")
        return found

    def code(self):
        """The code that the call ends with."""
        self.wait_for(lambda: self.ended, what="the end of the call")
        return self.call.code().name

    def describe(self):
        return vars(self)


class Loader(_Call):
    """Loader i of num_loaders, on one connection."""

    def __init__(self, stub, loader=0, num_loaders=1, group="g", incarnation=1, generation_seen=0,
                 streams=None, timeout=120):
        self.welcome = None
        self.positions, self.acks, self.released = [], [], []
        self.done, self.drained = [], False
        self.credits = {}  # (stream, pass, step) -> LoaderCredit of the last epoch
        self._ids = iter(range(1 << 30))
        hello = session_pb2.LoaderHello(
            group=group, loader=loader, num_loaders=num_loaders, incarnation=incarnation,
            generation_seen=generation_seen,
            streams=streams or [session_pb2.LoaderStream(name="train", held_from=loader)])
        super().__init__(stub.PushBatches, service_pb2.BatchFrame(hello=hello), timeout)

    def _take(self, notice):
        kind = notice.WhichOneof("notice")
        value = getattr(notice, kind)
        assert (kind == "welcome") == (self.welcome is None), "the welcome comes first, and once"
        if kind == "welcome":
            self.welcome = value
        elif kind == "position":
            self.positions.append(value)
            self.credits.clear()
        elif kind == "credit":
            self.credits[value.at.stream, getattr(value.at, "pass"), value.at.step] = value
        elif kind == "ack":
            self.acks.append(value)
        elif kind == "released":
            self.released.append(value)
        elif kind == "pass_done":
            self.done.append(value)
        else:
            self.drained = True

    def position(self, count=1):
        self.wait_for(lambda: len(self.positions) >= count, what="a position")
        return self.positions[-1]

    def credit(self, step, stream="train", pass_=0):
        return self.wait_for(lambda: self.credits.get((stream, pass_, step)),
                             what=f"a credit for step {step}")

    def frames_of(self, step, batch, microbatch=0, last=True, epoch=None, state=None, digest=None,
                  totals=None, stream="train", pass_=0, chunk=1 << 20):
        head = session_pb2.PushHead(at=address_of(step, stream, pass_), microbatch=microbatch,
                                    last_microbatch=last, totals=totals)
        head.epoch = self.positions[-1].epoch if epoch is None else epoch
        if state is not None:
            head.state = state
        if digest is not None:
            head.digest = digest
        made = frames(next(self._ids), batch, chunk)
        made[0].push.CopyFrom(head)
        for field in ("options", "cp_size", "ranks"):
            made[0].begin.ClearField(field)
        return made

    def push(self, step, batch, wait=True, **head):
        """Sends a batch; its ack."""
        count = len(self.acks)
        self.send(*self.frames_of(step, batch, **head))
        if not wait:
            return None
        self.wait_for(lambda: len(self.acks) > count, what=f"the ack of step {step}")
        return self.acks[-1]

    def end(self, end_step, stream="train", pass_=0, epoch=None):
        end = session_pb2.EndOfStream(stream=stream, end_step=end_step)
        setattr(end, "pass", pass_)
        end.epoch = self.positions[-1].epoch if epoch is None else epoch
        self.send(service_pb2.BatchFrame(end=end))


class ShardAnswer(Answer):
    """One microbatch's shard."""

    credits = False

    def __init__(self):
        super().__init__()
        self.delivery = None

    def take(self, frame, size):
        if frame.frame_seq == 0 and not frame.HasField("status"):
            self.delivery = frame.delivery
        return super().take(frame, size)


class Reader(_Call):
    """An open session's PullShards."""

    def __init__(self, stub, session, timeout=120):
        self.answers = {}  # id -> [ShardAnswer], of microbatches
        self.order = []    # ids as they were answered
        self._ids = iter(range(1, 1 << 30))
        super().__init__(stub.PullShards, session_pb2.PullRequest(session=session), timeout)

    def _take(self, frame):
        answers = self.answers.setdefault(frame.batch_id, [])
        if not answers or (answers[-1].sent and frame.frame_seq == 0):
            answers.append(ShardAnswer())
        if answers[-1].take(frame, frame.ByteSize()):
            self.order.append(frame.batch_id)

    def want(self, step, stream="train", pass_=0, want_id=None, **fields):
        """Asks for a step; the id."""
        want_id = next(self._ids) if want_id is None else want_id
        want = session_pb2.Want(id=want_id, at=address_of(step, stream, pass_), **fields)
        self.send(session_pb2.PullRequest(want=want))
        return want_id

    def commit(self, step, stream="train", pass_=0):
        self.send(session_pb2.PullRequest(
            commit=session_pb2.Commit(at=address_of(step, stream, pass_))))

    def close_pass(self, stream="train", pass_=0, finished=False):
        closed = session_pb2.PassClosed(stream=stream, finished=finished)
        setattr(closed, "pass", pass_)
        self.send(session_pb2.PullRequest(pass_closed=closed))

    def shards(self, want_id, microbatches=1):
        """The answers to a want, complete."""
        return self.wait_for(
            lambda: self.order.count(want_id) >= microbatches and self.answers[want_id],
            what=f"the answer to want {want_id}")

    def status(self, want_id):
        """The status that a want is answered with."""
        answer = self.shards(want_id)[-1]
        assert answer.status is not None, "it was answered with shards"
        return answer.status


def end_sessions(stub):
    """Ends all calls and what the server's groups hold: by a last generation of each, which closes."""
    while _Call.begun:
        _Call.begun.pop().cancel()
    for view in stub.ListGroups(session_pb2.ListGroupsRequest(), timeout=10).groups:
        if view.ended:
            continue
        last = opening({"identity": {}}, 1, group=view.group, generation=LAST_GENERATION)
        stub.OpenSession(last, timeout=10)
        stub.CloseSession(session_pb2.CloseSessionRequest(session=name_of(last)), timeout=10)


def code_of(status):
    """The name of a BatchStatus' code."""
    return next(each.name for each in grpc.StatusCode if each.value[0] == status.code)


def open_group(stub, options, cp_size=2, **fields):
    """Opens a session for every rank; their Readers."""
    readers = []
    for rank in range(cp_size):
        request = opening(options, cp_size, rank, **fields)
        stub.OpenSession(request, timeout=10)
        readers.append(Reader(stub, name_of(request)))
    return readers
