"""What peers send that mean harm: batches that cost a server much more than their sender, again and
again; and what one sees of the server meanwhile."""

import pathlib
import threading
import time

import grpc

from safetensors_file import tensor
from streams import METHOD, packed
from stubs import connect, service_pb2

RANKS = 4096


def planning_batch():
    """16 KB in 250 streams over 4096 ranks: a million outputs to plan."""
    batch = {"input_ids": tensor("U8", [[1]]), "labels": tensor("I8", [[1]])}
    batch |= {f"e{number}": tensor("U8", [[1]]) for number in range(248)}
    extras = [{"name": name} for name in batch if name.startswith("e")]
    return packed(batch, {"contiguous": {}, "padding_token_id": "0", "extra_streams": extras},
                  RANKS)


def long_heads_batch(text_bytes):
    """512 bytes and a text that the head of each of 4096 shards repeats."""
    ids = tensor("I64", range(64), (1, 64))
    return packed({"input_ids": ids, "text": "x" * text_bytes}, {"identity": {}}, RANKS)


def padded_batch(mib):
    """224 bytes that become so many MiB: 24 a column."""
    batch = {name: tensor("I64", range(14), (1, 14)) for name in ("input_ids", "labels")}
    columns = (mib << 20) // 24
    return packed(batch, {"contiguous": {"pad_multiple": str(columns)}, "padding_token_id": "0"}, 1)


def begun_and_cancelled(batch, body=b""):
    """Two messages that are the beginning of a batch and its end. Both have the body."""
    begin = service_pb2.BatchFrame(batch_id=1, begin=batch.begin, body=body)
    cancel = service_pb2.BatchFrame(batch_id=1, frame_seq=1, cancel=True, body=body)
    return begin.SerializeToString(), cancel.SerializeToString()


class Flood:
    """Streams on connections of their own that send the same messages over and over, as fast as
    they are taken, and read what comes. As a context: ends with it."""

    def __init__(self, address, num_streams, messages):
        self._messages = messages
        self._stopped = threading.Event()
        self._channels = [connect(address)[0] for _ in range(num_streams)]
        self._calls = [channel.stream_stream(METHOD)(self._sent(), timeout=120)
                       for channel in self._channels]
        self._readers = [threading.Thread(target=self._read, args=(call,)) for call in self._calls]
        self.answers = 0  # messages; of all streams, about

    def _sent(self):
        while not self._stopped.is_set():
            yield from self._messages

    def _read(self, call):
        try:
            for _ in call:
                self.answers += 1
        except grpc.RpcError:
            pass  # __exit__ looks at the code

    def __enter__(self):
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        ended = [(call.code(), call.details()) for call in self._calls if not call.is_active()]
        for call in self._calls:
            call.cancel()
        for reader in self._readers:
            reader.join()
        for channel in self._channels:
            channel.close()
        assert not ended, ended


def slowest(seconds, ask):
    """The longest time that a call of `ask` takes, of those of so many seconds."""
    longest, end = 0, time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        ask()
        longest = max(longest, time.monotonic() - begin)
        time.sleep(0.05)
    return longest


def peak_bytes(process):
    """The most resident memory that the process has had."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
