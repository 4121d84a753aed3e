"""A loader or a rank of a training run as a process of its own, to be killed: session_process.py
loader|rank JSON. A rank prints a line for every step that it has consumed."""

import hashlib
import json
import sys
import time

import numpy as np

import cpshard

STEPS, VALIDATE_EVERY, VALIDATION_STEPS = 20, 5, 3


def batch_of(stream, pass_, step, microbatch, columns=30):
    """Two rows of other lengths and values from step to step."""
    columns += step % 5
    tokens = np.arange(2 * columns).reshape(2, columns) + 1000 * step + 100_000 * microbatch
    tokens += 10_000_000 * (pass_ + 1) * (stream == "validation")
    return {"input_ids": tokens, "labels": tokens * 3 - 7}


class Numbers:
    """A StepSource. Says of its work what it was asked for."""

    def __init__(self, stream, columns=30):
        self.stream, self.columns = stream, columns
        self.steps = STEPS if stream == "train" else VALIDATION_STEPS

    def make(self, pass_, step):
        if step >= self.steps:
            return None
        count = 2 if self.stream == "train" else 1
        batches = [batch_of(self.stream, pass_, step, each, self.columns)
                   for each in range(count)]
        return cpshard.SourceStep(batches, state=b"behind %d" % step)

    def end_step(self, pass_):
        return self.steps

    def rewind(self, pass_, step, state):
        if state is not None:
            assert state.state == b"behind %d" % state.step and state.step < step


def digest_of(shard):
    digest = hashlib.sha256()
    for name, value in sorted(shard.batch.items()):
        array = np.asarray(value)
        digest.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    layout = shard.layout
    digest.update(repr((layout.original_seq_len, layout.padded_seq_len, layout.cp_rank,
                        layout.cp_size, layout.runs.tolist(), layout.batch_digest)).encode())
    return digest.hexdigest()


def line_of(step, state):
    return {"at": [step.stream, step.pass_, step.step],
            "shards": [digest_of(shard) for shard in step.microbatches],
            "labels": step.totals.num_label_tokens, "state": state}


def train(rank, hear):
    """All of a run, from wherever the rank stands; `hear` gets every step when it is consumed."""
    def validate():
        for step in rank.steps("validation"):
            hear(line_of(step, rank.state()))
        rank.close_pass("validation")

    def owes_validation():
        streams = rank.state()["streams"]
        return streams["validation"]["pass"] < streams["train"]["next_step"] // VALIDATE_EVERY

    while owes_validation():
        validate()
    for step in rank.steps("train"):
        hear(line_of(step, rank.state()))
        while owes_validation():
            validate()


def run_rank(address, settings):
    pace = settings.pop("pace")  # seconds, of a step: so that a blow falls in the middle

    def hear(line):
        print(json.dumps(line), flush=True)
        time.sleep(pace)

    streams = ["train", cpshard.RankStream("validation", closed=True)]
    with cpshard.rank(address, streams=streams, options="round_robin", group="job/dp0", timeout=60,
                      **settings) as rank:
        train(rank, hear)
        for stream in ("train", "validation"):
            rank.close_pass(stream, finished=True)
        rank.close(60)


def run_loader(address, settings):
    columns = settings.pop("columns", 30)
    sources = {stream: Numbers(stream, columns) for stream in ("train", "validation")}
    cpshard.loader(sources, address, group="job/dp0", **settings).wait(120)


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    {"rank": run_rank, "loader": run_loader}[sys.argv[1]](given.pop("address"), given)
