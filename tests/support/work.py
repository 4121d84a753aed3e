"""Batches for tests that need a server at work: a good one, to see that it is well, and one that
keeps a worker busy."""

import functools

import numpy as np

from restatement import restate
from safetensors_file import tensor
from stubs import connect, request_of, shards_of

OPTIONS = {"round_robin": {}}
GOOD = {"input_ids": tensor("I64", np.arange(60), (2, 30)),
        "labels": tensor("I64", 1000 + np.arange(60), (2, 30))}


@functools.cache
def good_answer():
    return restate(GOOD, OPTIONS, 4).shards


def is_right(reply):
    """Whether this is the answer to GOOD over 4 ranks."""
    shards = shards_of(reply)
    return len(shards) == 4 and all(
        set(got) == set(want) and all(got[name].same(want[name]) for name in want)
        for got, want in zip(shards, good_answer()))


def check_usable(test, address):
    """The server answers a good request, rightly."""
    channel, stub = connect(address)
    with channel:
        test.assertTrue(is_right(stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=10)))


@functools.cache
def slow_request():
    """A serialized ShardBatchRequest of some KB whose answer has 41,000 entries in 4 MB."""
    batch = dict(GOOD)
    for number in range(7):
        batch[f"e{number}"] = tensor("BOOL", np.ones((1, 30)))
    extras = [{"name": name} for name in batch if name.startswith("e")]
    return request_of(batch, OPTIONS | {"extra_streams": extras}, 4096).SerializeToString()
