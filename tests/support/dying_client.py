"""Clients that end badly, several rounds to a process: they cancel, run out of time, or wait to be
killed, before, during and after the upload and download of a batch."""

import random
import threading
import time

import grpc

from stream_case import growing_batch, large_batch
from streams import Stream, frames
from stubs import connect

PHASES = ("before", "uploading", "waiting", "downloading")
ROUNDS = 4  # of a client before its last


def reach(stream, phase, choice):
    """Sends and reads as far as that."""
    if phase == "before":
        return
    growing = choice.random() < 0.3
    batch = growing_batch() if growing else large_batch(choice.choice([1, 4, 12]))
    batches, chunk = choice.randint(1, 3), choice.choice([64 << 10, 1 << 20, 4 << 20])
    sent = [frame for number in range(batches) for frame in frames(number, batch, chunk)]
    if phase == "uploading":
        sent = sent[:choice.randint(1, max(1, len(sent) - 1))]
    stream.send(*sent)
    if phase == "downloading":
        for _ in range(choice.randint(1, batches)):  # each has a frame at least
            stream.read()


def fail(channel, choice):
    """One round that ends with a cancel or a deadline."""
    deadline = choice.random() < 0.5
    stream = Stream(channel, timeout=choice.uniform(0.002, 0.06) if deadline else 60)
    try:
        reach(stream, choice.choice(PHASES), choice)
        time.sleep(choice.uniform(0, 0.01))
        if not deadline:
            stream.cancel()
        stream.read_to_end()
    except grpc.RpcError:
        pass  # the end came while it read
    stream.end()
    assert stream.call.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED), (
        stream.call.code(), stream.call.details())


def read_on(stream):
    try:
        stream.read_to_end()
    except Exception:
        pass  # nobody is left to care


def main(address, seed, ready):
    """Tells `ready` when all rounds but the last are over and it can be killed in that one."""
    choice = random.Random(seed)
    channel, _ = connect(address)
    for _ in range(ROUNDS):
        fail(channel, choice)
    stream = Stream(channel, timeout=600)
    phase = choice.choice(PHASES)
    reach(stream, phase, choice)
    if phase == "downloading":
        threading.Thread(target=read_on, args=(stream,), daemon=True).start()
    ready.send(phase)
    time.sleep(600)
