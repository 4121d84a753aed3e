"""The state machines of a loader and of a reader, alone: no server, no threads, no clock."""

import pytest

from cpshard.backoff import Backoff
from cpshard.errors import Error, error_of
from cpshard.session.clock import SILENCE, SessionClock
from cpshard.session.loader_ledger import LoaderLedger, MadeBatch, MadeStep
from cpshard.session.messages import (Ack, Commit, DeliveryHead, EndOfStream, LoaderCredit,
                                      LoaderHello, LoaderState, LoaderStream, OpenedSession,
                                      OpenedStream, OpenSession, PassClosed, PassDone, Position,
                                      ReaderStream, Released, ResumeState, StepAddress, StepTotals,
                                      Want)
from cpshard.session.reader_ledger import MAX_WANTS, EndOfPass, ReaderLedger, ReceivedShard


def at(step, stream="train", pass_=0):
    return StepAddress(stream, pass_, step)


# --- a loader -------------------------------------------------------------------------------------


class LoaderBench:
    """A ledger with a source of 100 steps; position, credit and ack as a server gives them."""

    def __init__(self, loader=0, num_loaders=1, streams=("train",), microbatches=1):
        self.ledger = LoaderLedger(LoaderHello("g", loader, num_loaders,
                                               streams=[LoaderStream(name) for name in streams]))
        self.ledger.connected()
        self.microbatches, self.rewinds = microbatches, []

    def position(self, from_step=0, epoch=1, generation=1, pass_=0, **fields):
        self.ledger.on_position(Position(generation, "train", pass_, epoch, from_step, **fields))

    def credit(self, *steps, epoch=1, nbytes=1000, stream="train", pass_=0):
        for step in steps:
            self.ledger.on_credit(LoaderCredit(at(step, stream, pass_), epoch, nbytes))

    def make(self, **made):
        """All that is to be made; the steps."""
        steps = []
        while (work := self.ledger.next_work()) is not None:
            if work.rewind is not None:
                self.rewinds.append((work.step, work.rewind.state))
            batches = [MadeBatch(f"{work.step}.{i}", 100) for i in range(self.microbatches)]
            self.ledger.made(work, MadeStep(batches, **{"state": b"%d" % work.step, **made}))
            steps.append(work.step)
        return steps

    def pushed(self):
        """(step, microbatch) of all that is to be pushed now."""
        pushed = []
        while (push := self.ledger.next_message()) is not None:
            pushed.append((push.head.at.step, push.head.microbatch))
        return pushed

    def ack(self, step, microbatch=0, epoch=1, error=None):
        self.ledger.on_ack(Ack(at(step), epoch, microbatch, error))

    def held_from(self):
        return self.ledger.hello_message().streams[0].held_from


class TestLoader:
    def test_nothing_is_made_before_there_is_a_position(self):
        bench = LoaderBench()
        assert bench.make() == []
        bench.position()
        assert bench.make() == [0] and bench.rewinds == []

    def test_one_step_is_made_ahead_of_credit(self):
        bench = LoaderBench(1, 4)
        bench.position()
        assert bench.make() == [1] and bench.pushed() == []
        bench.credit(1, 5)
        assert bench.make() == [5, 9] and bench.pushed() == [(1, 0), (5, 0)]

    def test_pushes_go_in_the_order_of_credits(self):
        bench = LoaderBench(streams=("a", "train"))
        bench.position()
        bench.ledger.on_position(Position(1, "a", 0, 1, 0))
        bench.credit(0, 1)
        bench.credit(0, stream="a")
        bench.credit(2)
        bench.make()
        order = []
        while (push := bench.ledger.next_message()) is not None:
            order.append((push.head.at.stream, push.head.at.step))
        assert order == [("train", 0), ("train", 1), ("a", 0), ("train", 2)]

    def test_a_microbatch_says_what_the_step_is(self):
        bench = LoaderBench(microbatches=2)
        bench.position()
        bench.credit(0)
        totals = StepTotals(2, 5)
        bench.ledger.made(bench.ledger.next_work(),
                          MadeStep([MadeBatch("a", 1), MadeBatch("b", 1)], totals, b"s"))
        first, last = bench.ledger.next_message().head, bench.ledger.next_message().head
        assert (first.totals, first.state, first.last_microbatch) == (totals, None, False)
        assert (last.totals, last.state, last.last_microbatch) == (None, b"s", True)

    def test_a_landed_step_is_kept_until_it_is_released(self):
        bench = LoaderBench()
        bench.position()
        bench.credit(0, 1)
        bench.make()
        bench.pushed()
        bench.ack(0)
        assert bench.held_from() == 0
        for released, held in ((Released("train", 0, 2, 1), 0), (Released("train", 1, 1, 1), 0),
                               (Released("train", 0, 1, 1), 1)):
            bench.ledger.on_released(released)
            assert bench.held_from() == held
        assert bench.ledger.hello_message().streams[0].released == 1

    def test_a_server_that_lost_its_window_gets_it_again_without_a_rewind(self):
        bench = LoaderBench()
        bench.position()
        bench.credit(0, 1, 2)
        bench.make()
        for step, _ in bench.pushed():
            bench.ack(step)
        for epoch in (2, 3):
            bench.ledger.disconnected()
            assert bench.pushed() == []
            bench.ledger.connected()
            bench.position(1, epoch=epoch)
            bench.credit(1, 2, epoch=epoch)
            assert bench.pushed() == [(1, 0), (2, 0)]
        assert bench.make() == [] and bench.rewinds == []

    def test_microbatches_that_have_landed_are_not_pushed_again(self):
        bench = LoaderBench(microbatches=3)
        bench.position()
        bench.credit(0)
        bench.make()
        bench.pushed()
        bench.ledger.disconnected()
        bench.ledger.connected()
        bench.position(0, landed=(0, 2))
        bench.credit(0)
        assert bench.pushed() == [(0, 1)]

    def test_a_position_outside_of_what_is_held_rewinds_with_its_state(self):
        bench = LoaderBench()
        bench.position()
        bench.credit(0, 1, 2)
        bench.make()
        bench.ledger.on_released(Released("train", 0, 1, 2))
        state = LoaderState(0, b"0")
        bench.position(1, epoch=2, generation=2, state=state)
        assert bench.make() == [1] and bench.rewinds == [(1, state)]
        bench.position(50, epoch=3, generation=2)
        assert bench.make() == [50] and bench.rewinds[1:] == [(50, None)]

    def test_a_step_that_the_server_lost_is_pushed_with_a_new_credit(self):
        bench = LoaderBench()
        bench.position()
        bench.credit(0)
        bench.make()
        bench.pushed()
        bench.ack(0)
        bench.ack(0, error=error_of("DATA_LOSS", "late"))  # of what has landed: means nothing
        assert bench.pushed() == []
        bench.ack(0)
        bench.credit(0)
        assert bench.pushed() == [(0, 0)]

    def test_a_credit_that_is_repeated_keeps_its_turn(self):
        bench = LoaderBench(streams=("a", "train"))
        bench.position()
        bench.ledger.on_position(Position(1, "a", 0, 1, 0))
        bench.credit(0)
        bench.credit(0, stream="a")
        bench.credit(0)
        bench.make()
        assert bench.ledger.next_message().head.at.stream == "train"

    def test_data_streams_take_turns(self):
        bench = LoaderBench(streams=("a", "train"))
        bench.position()
        bench.ledger.on_position(Position(1, "a", 0, 1, 0))
        bench.credit(0, 1)
        bench.credit(0, 1, stream="a")
        order = []
        while (work := bench.ledger.next_work()) is not None:
            assert bench.ledger.next_work() == work  # the same until it is done
            bench.ledger.made(work, MadeStep([MadeBatch("x", 1)]))
            order.append(work.stream)
        assert order == ["a", "train"] * 3

    def test_the_highest_generation_is_echoed_with_its_own_releases(self):
        bench = LoaderBench(streams=("a", "train"))
        bench.position()
        bench.credit(0, 1)
        bench.make()
        bench.ledger.on_released(Released("train", 0, 1, 1))
        bench.ledger.on_position(Position(2, "a", 0, 5, 0))
        hello = bench.ledger.hello_message()
        assert hello.generation_seen == 2
        assert [stream.released for stream in hello.streams] == [0, 0]
        bench.position(7, epoch=9, generation=1)  # of one that is over
        assert bench.ledger.hello_message() == hello

    def test_what_was_made_for_another_position_is_dropped(self):
        bench = LoaderBench()
        bench.position()
        work = bench.ledger.next_work()
        bench.position(7, epoch=2)
        bench.ledger.made(work, MadeStep([MadeBatch("old", 1)]))
        bench.credit(0, 7, epoch=2)
        assert bench.make()[0] == 7 and bench.pushed() == [(7, 0)]

    def test_a_refusal_that_time_mends_waits_and_one_that_does_not_ends_it(self):
        bench = LoaderBench()
        bench.position()
        bench.credit(0)
        bench.make()
        bench.pushed()
        bench.ack(0, error=error_of("DATA_LOSS", "damaged"))
        assert bench.pushed() == [(0, 0)]  # at once, the first time
        bench.ack(0, error=error_of("DATA_LOSS", "damaged"))
        assert bench.pushed() == [] and bench.ledger.postponed()
        bench.ledger.push_again()
        assert bench.pushed() == [(0, 0)]
        bench.ack(0, error=error_of("RESOURCE_EXHAUSTED", "no room"))
        assert bench.ledger.postponed() and bench.ledger.failure is None
        bench.credit(0)
        assert bench.pushed() == [(0, 0)]
        bench.ack(0, error=error_of("INVALID_ARGUMENT", "no labels"))
        assert isinstance(bench.ledger.failure, ValueError)
        assert "step 0 of data stream 'train' pass 0 microbatch 0 was refused: no labels" in \
            str(bench.ledger.failure)
        assert bench.ledger.next_work() is None and bench.ledger.next_message() is None

    def test_a_step_that_five_servers_lost_their_device_with_ends_it(self):
        lost = error_of("UNAVAILABLE", "the server has lost cuda:0", "DEVICE_LOST", {}, 3.0)
        bench = LoaderBench()
        for server in range(5):
            assert bench.ledger.failure is None
            bench.ledger.connected()
            bench.position()
            bench.credit(0)
            bench.make()
            assert bench.pushed() == [(0, 0)]
            bench.ack(0, error=lost)
            bench.ack(0, error=lost)  # of the same device
            if server < 4:
                bench.ledger.disconnected()
        assert bench.ledger.failure.code == "UNAVAILABLE"
        for words in ("step 0 of data stream 'train'", "5 servers lost their device",
                      "the server has lost cuda:0"):
            assert words in str(bench.ledger.failure)

    def test_servers_that_only_stop_end_no_loader_however_many(self):
        bench = LoaderBench()
        for _ in range(20):
            bench.ledger.connected()
            bench.position()
            bench.credit(0)
            bench.make()
            assert bench.pushed() == [(0, 0)]
            bench.ack(0, error=error_of("UNAVAILABLE", "it stops", "DRAINING"))
            bench.ledger.disconnected()
        assert bench.ledger.failure is None

    @pytest.mark.parametrize("made, words", [
        (MadeStep([]), "no microbatch"), (MadeStep([MadeBatch(0)], StepTotals(2)), "count 2"),
        (MadeStep([MadeBatch(0)], state=b"x" * 65_537), "65537 bytes; at most 65536")])
    def test_a_step_that_cannot_be_pushed_is_a_failure(self, made, words):
        bench = LoaderBench()
        bench.position()
        bench.ledger.made(bench.ledger.next_work(), made)
        assert words in str(bench.ledger.failure)

    def test_a_step_larger_than_its_credit_is_a_failure(self):
        bench = LoaderBench(microbatches=3)
        bench.position()
        bench.credit(0, nbytes=299)
        bench.make()
        assert bench.pushed() == [] and "300 bytes" in str(bench.ledger.failure)

    def test_the_end_needs_no_credit_and_is_declared_after_every_position(self):
        bench = LoaderBench()
        bench.position()
        bench.ledger.made_end(bench.ledger.next_work(), 0)
        for epoch in (1, 2):
            assert bench.ledger.next_message() == EndOfStream("train", 0, epoch, 0)
            assert bench.ledger.next_message() is None
            bench.position(epoch=2)
        assert bench.ledger.next_work() is None

    @pytest.mark.parametrize("end", [-1, 2, 0])
    def test_an_end_that_cannot_be_is_a_failure(self, end):
        bench = LoaderBench()
        bench.position()
        bench.ledger.made(bench.ledger.next_work(), MadeStep([MadeBatch(0)]))
        bench.credit(0)
        bench.ledger.made_end(bench.ledger.next_work(), end)
        assert f"end at step {end}" in str(bench.ledger.failure)

    def test_the_next_pass_begins_at_the_loaders_own_step_and_the_last_one_finishes(self):
        bench = LoaderBench(1, 2)
        bench.position()
        bench.credit(1)
        bench.make()
        bench.ledger.on_pass_done(PassDone("train", 0))
        assert bench.ledger.held_steps() == 0 and bench.ledger.next_work() is None
        bench.position(pass_=1, epoch=2)
        assert bench.make() == [1] and bench.rewinds == [(1, None)]
        bench.ledger.on_pass_done(PassDone("train", 0))  # stale
        assert not bench.ledger.finished() and bench.ledger.held_steps() == 1
        bench.ledger.on_pass_done(PassDone("train", 1, finished=True))
        assert bench.ledger.finished() and bench.ledger.next_work() is None


# --- a reader -------------------------------------------------------------------------------------


class ReaderBench:
    def __init__(self, prefetch=2, **stream):
        self.ledger = ReaderLedger(OpenSession("g", streams=[ReaderStream("train", **stream)]),
                                   prefetch)
        self.wants = {}

    def open(self, **opened):
        message = self.ledger.open_message()
        self.ledger.on_opened(OpenedSession(1, [OpenedStream("train", **opened)]))
        return message.streams[0]

    def take(self):
        """The requests, wants as their steps."""
        taken = []
        for request in self.ledger.take_requests():
            if isinstance(request, Want):
                self.wants[request.at.step] = request.id
                request = request.at.step
            taken.append(request)
        return taken

    def deliver(self, step, microbatch=0, count=1, want=None, pass_=0, **head):
        last = microbatch + 1 == count
        head = {"totals": StepTotals(count), "owner_state": b"%d" % step if last else None, **head}
        self.ledger.on_delivery(ReceivedShard(DeliveryHead(
            self.wants[step] if want is None else want, at(step, pass_=pass_), microbatch, last,
            **head), f"{step}.{microbatch}"))

    def fail(self, step, code, **error):
        self.ledger.on_request_error(self.wants[step], error_of(code, "why", **error))

    def next(self):
        received = self.ledger.next("train")
        return received if isinstance(received, EndOfPass) else received.at.step


class TestReader:
    def test_steps_are_asked_for_up_to_the_prefetch_and_handed_out_in_order(self):
        bench = ReaderBench()
        bench.open()
        assert bench.take() == [0, 1, 2] and bench.take() == []
        for step in (2, 0, 1):
            bench.deliver(step)
        assert [bench.next(), bench.next()] == [0, 1]
        assert bench.take() == [Commit(at(0)), 3, 4]

    def test_prefetching_commits_nothing_and_consumed_commits_the_step_in_hand(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        bench.deliver(0)
        assert bench.next() == 0 and bench.ledger.state_of("train").next_step == 0
        bench.ledger.consumed("train")
        state = bench.ledger.state_of("train")
        assert (state.next_step, state.resume) == (1, ResumeState(1, {0: LoaderState(0, b"0")}))
        assert bench.take()[0] == Commit(at(0))

    def test_what_is_here_is_not_asked_for_again_after_a_reconnect(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        for step in (0, 1):
            bench.deliver(step)
        assert bench.next() == 0
        bench.ledger.disconnected()
        assert bench.take() == []
        told = bench.open()
        assert (told.next_step, told.received) == (0, 1)
        assert bench.take() == [2, 3] and bench.next() == 1

    def test_a_step_behind_a_hole_is_asked_for_again_after_a_reconnect(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        bench.deliver(1)
        bench.ledger.disconnected()
        assert bench.open().received is None
        assert bench.take() == [0, 1, 2]

    def test_a_step_that_changed_meanwhile_is_not_mixed_of_two(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        bench.deliver(0, 0, 2, digest=1)
        bench.ledger.disconnected()
        bench.open()
        bench.take()
        bench.deliver(0, 0, 2, digest=2)
        bench.deliver(0, 1, 2, digest=3)
        assert [each.head.digest for each in bench.ledger.next("train").microbatches] == [2, 3]

    def test_a_repeated_delivery_is_dropped_and_one_that_was_not_asked_for_is_an_error(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        bench.deliver(0)
        bench.deliver(0)
        assert bench.next() == 0 and not bench.ledger.ready("train")
        for step, fields, words in ((1, {"want": 99}, "was not made"),
                                    (2, {"want": bench.wants[1]}, "is for step 1"),
                                    (1, {"microbatch": 1, "count": 2}, "before microbatch 0"),
                                    (1, {"totals": StepTotals(2)}, "count 2"),
                                    (1, {"totals": None}, "are missing")):
            with pytest.raises(Error, match=words):
                bench.deliver(step, **fields)

    def test_a_repeated_microbatch_counts_once(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        for microbatch, digest in ((0, 1), (0, 2), (1, 3)):
            bench.deliver(0, microbatch, 2, digest=digest)
        step = bench.ledger.next("train")
        assert [each.head.digest for each in step.microbatches] == [1, 3]

    def test_a_delivery_of_a_loader_that_cannot_own_the_step_is_an_error(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        with pytest.raises(Error, match="step % L == i"):
            bench.deliver(1, owner=0, num_loaders=2)

    @pytest.mark.parametrize("code, reason, again", [
        ("DEADLINE_EXCEEDED", "NOT_READY", "at once"), ("ABORTED", "PEER_LEFT", "later"),
        ("RESOURCE_EXHAUSTED", "TOO_MANY", "later"), ("UNAVAILABLE", "DRAINING", "later")])
    def test_what_time_mends_is_asked_for_again(self, code, reason, again):
        bench = ReaderBench(prefetch=0)
        bench.open()
        bench.take()
        bench.fail(0, code, reason=reason)
        assert bench.ledger.postponed() == (again == "later")
        assert bench.take() == ([0] if again == "at once" else [])
        bench.ledger.ask_again()
        assert bench.take() == ([] if again == "at once" else [0])

    def test_a_refusal_is_told_behind_what_has_been_received(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        bench.deliver(0)
        bench.fail(1, "FAILED_PRECONDITION", reason="LOADERS_DIFFER")
        assert bench.next() == 0
        assert bench.ledger.ready("train")
        with pytest.raises(RuntimeError, match="why"):
            bench.next()

    def test_the_end_commits_the_last_step_and_is_told_as_often_as_it_is_asked(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        bench.deliver(0)
        bench.fail(1, "OUT_OF_RANGE", reason="END_OF_STREAM", values={"end_step": "1"})
        assert bench.next() == 0
        assert [bench.next(), bench.next()] == [EndOfPass(at(1))] * 2
        assert bench.take() == [Commit(at(0))]

    def test_an_end_that_others_would_not_see_is_an_error(self):
        for end, words in (("1", "step 2 was received"), ("3", "the answer for step 1")):
            bench = ReaderBench()
            bench.open()
            bench.take()
            bench.deliver(0)
            if end == "1":
                bench.deliver(2)
            bench.fail(1, "OUT_OF_RANGE", reason="END_OF_STREAM", values={"end_step": end})
            bench.next()
            with pytest.raises(RuntimeError, match=words):
                bench.next()

    def test_a_pass_that_is_left_is_told_of_and_the_next_one_waits_to_be_opened(self):
        bench = ReaderBench()
        bench.open()
        bench.take()
        bench.deliver(0)
        old = bench.wants[0]
        bench.next()
        bench.ledger.close_pass("train", False)
        assert bench.take() == [PassClosed("train", 0)]
        with pytest.raises(RuntimeError, match="between two passes"):
            bench.next()
        bench.ledger.start_pass("train")
        assert bench.take() == [0, 1, 2]
        bench.deliver(1, want=old + 1)  # of the pass that was left
        bench.deliver(0, pass_=1)
        assert bench.next() == 0 and not bench.ledger.ready("train")
        state = bench.ledger.state_of("train")
        assert (state.pass_, state.next_step, state.resume) == (1, 0, ResumeState(1))
        bench.ledger.close_pass("train", True)
        assert bench.take() == [PassClosed("train", 1, True)]
        bench.ledger.start_pass("train")
        with pytest.raises(RuntimeError, match="finished"):
            bench.next()

    def test_a_server_whose_position_cannot_be_is_refused(self):
        for opened, words in (({"floor": 5}, "nothing below step 5"),
                              ({"floor": 0, "pass_": 2}, "in pass 2")):
            with pytest.raises(RuntimeError, match=words):
                ReaderBench(next_step=3).open(**opened)
        with pytest.raises(RuntimeError, match="generation 1 was to be opened"):
            ReaderBench().ledger.on_opened(OpenedSession(2))

    def test_a_resume_state_is_learnt_from_the_server_and_then_from_every_loader(self):
        bench = ReaderBench(next_step=4)
        assert bench.ledger.state_of("train").resume is None
        known = ResumeState(2, {0: LoaderState(2, b"a"), 1: LoaderState(3, b"b")})
        bench.open(floor=4, resume=known)
        assert bench.ledger.state_of("train").resume == known
        bench = ReaderBench(next_step=4)
        bench.open(floor=4)
        bench.take()
        for step in (4, 5):
            bench.deliver(step, owner=step % 2, num_loaders=2)
            assert bench.next() == step
            bench.ledger.consumed("train")
        assert bench.ledger.state_of("train").resume == ResumeState(
            2, {0: LoaderState(4, b"4"), 1: LoaderState(5, b"5")})

    def test_other_loaders_than_those_of_the_checkpoint_are_an_error(self):
        bench = ReaderBench(next_step=2, resume=ResumeState(2, {0: LoaderState(0, b"a")}))
        bench.open(floor=2)
        bench.take()
        bench.deliver(2, owner=2, num_loaders=3)
        with pytest.raises(RuntimeError, match="3 loaders.*start 2 loaders"):
            bench.next()

    def test_no_more_is_asked_for_than_may_wait_and_first_what_is_needed_first(self):
        names = [f"s{i}" for i in range(4)]
        ledger = ReaderLedger(OpenSession("g", streams=[ReaderStream(name) for name in names]), 100)
        ledger.on_opened(OpenedSession(1))
        wants = ledger.take_requests()
        assert len(wants) <= MAX_WANTS
        assert [want.at.step for want in wants[:8]] == [0] * 4 + [1] * 4


# --- times ----------------------------------------------------------------------------------------


class NoChance:
    def random(self):
        return 0.0


class TestTimes:
    def test_waits_double_up_to_two_seconds_and_begin_anew_when_the_server_works(self):
        clock = SessionClock(Backoff(NoChance()))
        waits = [clock.disconnected() for _ in range(10)]
        assert waits == [min(0.02 * 2 ** tries, 2.0) for tries in range(10)]
        clock.heard(0)
        assert clock.disconnected() == 0.02 and clock.disconnected(5.0) == 5.0

    def test_chance_spreads_waits(self):
        waits = {Backoff().next() for _ in range(50)}
        assert len(waits) > 40 and all(0.01 <= wait <= 0.02 for wait in waits)

    def test_what_is_postponed_is_tried_again_once_after_a_while(self):
        clock = SessionClock(Backoff(NoChance()))
        clock.connected(10)
        clock.set_postponed(True, 10)
        assert not clock.take_again(10.1)
        clock.set_postponed(True, 10.1)  # the first one counts
        assert clock.next_event() == 10.2 and clock.take_again(10.2) and not clock.take_again(10.3)
        clock.postpone_for(3)
        clock.set_postponed(True, 20)
        assert not clock.take_again(22.9) and clock.take_again(23)

    def test_a_server_that_owes_and_is_silent_is_not_waited_for(self):
        clock = SessionClock(Backoff(NoChance()))
        clock.connected(0)
        assert not clock.take_silence(1000)  # it owes nothing
        clock.set_owed(True, 1000)
        assert not clock.take_silence(1000 + SILENCE - 1)
        clock.heard(1010)
        assert not clock.take_silence(1000 + SILENCE)
        assert clock.take_silence(1010 + SILENCE) and not clock.take_silence(1010 + SILENCE)
