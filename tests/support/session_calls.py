"""The calls of sessions, each brought to where the server holds something for it: by name,
f(stub, timeout), which returns the call."""

import numpy as np

from safetensors_file import tensor
from sessions import Loader, Reader, address_of, name_of, opening
from streams import packed
from stubs import session_pb2

OPTIONS = {"round_robin": {}}


def batch_of(columns=4000):
    ids = tensor("I64", np.arange(columns), (1, columns))
    return packed({"input_ids": ids, "labels": ids}, OPTIONS, None)


def _opened(stub, ranks=(0, 1), **fields):
    requests = [opening(OPTIONS, 2, rank, **fields) for rank in ranks]
    for request in requests:
        stub.OpenSession(request, timeout=10)
    return [name_of(request) for request in requests]


def idle_push(stub, timeout):
    loader = Loader(stub, timeout=timeout)
    loader.wait_for(lambda: loader.welcome)
    return loader.call


def half_a_batch(stub, timeout):
    _opened(stub)
    loader = Loader(stub, timeout=timeout)
    loader.credit(0)
    loader.send(*loader.frames_of(0, batch_of(), chunk=1 << 12)[:3])
    return loader.call


def waiting_pull(stub, timeout):
    reader = Reader(stub, _opened(stub)[0], timeout=timeout)
    reader.want(0)
    return reader.call


def idle_pull(stub, timeout):
    loader = Loader(stub)
    names = _opened(stub)
    reader = Reader(stub, names[0], timeout=timeout)
    loader.credit(0)
    loader.push(0, batch_of())
    reader.shards(reader.want(0))
    loader.cancel()
    return reader.call


def many_wants(stub, timeout):
    """To be stopped while it is answered."""
    reader = Reader(stub, _opened(stub)[0], timeout=timeout)
    for step in range(6):
        reader.want(step)
    return reader.call


def waiting_get(stub, timeout):
    want = session_pb2.Want(id=1, at=address_of(0))
    return stub.GetShard(session_pb2.GetShardRequest(session=_opened(stub)[0], want=want),
                         timeout=timeout)


def waiting_close(stub, timeout):
    return stub.CloseSession.future(session_pb2.CloseSessionRequest(session=_opened(stub)[0]),
                                    timeout=timeout)


CALLS = {call.__name__: call for call in (idle_push, half_a_batch, waiting_pull, many_wants,
                                          idle_pull, waiting_get, waiting_close)}
