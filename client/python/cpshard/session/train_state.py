"""What a trainer saves beside its weights, as a dict that is plain JSON."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any, Mapping, Union

from ..errors import Error, error_of, invalid
from .messages import MAX_STATE_BYTES, LoaderState, ReaderStream, ResumeState, check_number

State = Union[Mapping[str, Any], str]


def hash_of(options: Any) -> str:
    """Of a ShardingOptions message. (Not that of the C++ client: their states are not
    exchanged.)"""
    message = options.SerializeToString(deterministic=True)
    return "sha256:" + hashlib.sha256(message).hexdigest()[:32]


def state_dict(streams: list[ReaderStream], *, fingerprint: str, data_epoch: int, cp_size: int,
               options_hash: str) -> dict[str, Any]:
    named = {}
    for stream in streams:
        resume = stream.resume or ResumeState()
        named[stream.name] = {
            "pass": stream.pass_, "next_step": stream.next_step, "num_loaders": resume.num_loaders,
            "loaders": {str(loader): {"step": state.step,
                                      "state": base64.b64encode(state.state).decode()}
                        for loader, state in sorted(resume.loaders.items())}}
    return {"streams": named, "fingerprint": fingerprint, "data_epoch": data_epoch,
            "cp_size": cp_size, "options_hash": options_hash}


def _wrong(text: str) -> Error:
    return invalid(f"state of a checkpoint: {text}")


def _fields(value: Any, where: str, names: tuple[str, ...]) -> list[Any]:
    if not isinstance(value, Mapping) or set(value) != set(names):
        got = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        raise _wrong(f"{where} is to have the fields {', '.join(names)}; it has {got}")
    return [value[name] for name in names]


def check_state(state: State, fingerprint: str, options_hash: str) -> Mapping[str, Any]:
    """The state as a mapping. InvalidArgument: it is none. FailedPrecondition, with both values: it
    is of another data set or of other options. (Another cp_size is a re-shard, and fits.)"""
    if isinstance(state, str):
        try:
            state = json.loads(state)
        except ValueError as error:
            raise _wrong(f"no JSON: {error}") from None
    _, theirs, _, _, hash_then = _fields(state, "the whole", (
        "streams", "fingerprint", "data_epoch", "cp_size", "options_hash"))
    for what, then, now in (("a data set of fingerprint", theirs, fingerprint),
                            ("options of hash", hash_then, options_hash)):
        if then != now:
            raise error_of("FAILED_PRECONDITION", f"the checkpoint was written with {what} "
                           f"'{then}' and is to be resumed with '{now}'")
    assert isinstance(state, Mapping)
    if not isinstance(state["streams"], Mapping):
        raise _wrong(f"its streams are a {type(state['streams']).__name__}, no mapping of names")
    return state


def place(stream: ReaderStream, state: Mapping[str, Any] | None) -> ReaderStream:
    """The data stream as the state has it; one that the state does not name is at its beginning. A
    pass that a checkpoint was taken in goes on, wanted or not."""
    if state is None or stream.name not in state["streams"]:
        return stream
    where = f"streams['{stream.name}']"
    pass_, next_step, num_loaders, loaders = _fields(
        state["streams"][stream.name], where, ("pass", "next_step", "num_loaders", "loaders"))
    for name, number in (("pass", pass_), ("next_step", next_step), ("num_loaders", num_loaders)):
        check_number(f"state of a checkpoint: {where}.{name}", number)
    if not isinstance(loaders, Mapping):
        raise _wrong(f"{where}.loaders is a {type(loaders).__name__}, no mapping of loaders")
    resume = ResumeState(num_loaders)
    for key, value in loaders.items():
        loader, loader_state = _loader(key, value, where, num_loaders)
        resume.loaders[loader] = loader_state
    return ReaderStream(
        stream.name, pass_, next_step, None, stream.finished or (stream.closed and next_step == 0),
        stream.finished, stream.max_step_bytes, resume if num_loaders > 0 else None)


def _loader(key: Any, value: Any, where: str, num_loaders: int) -> tuple[int, LoaderState]:
    if not isinstance(key, str):
        raise _wrong(f"{where}.loaders has the key {key!r}; keys are strings, as JSON has them")
    step, encoded = _fields(value, f"{where}.loaders['{key}']", ("step", "state"))
    if not (key.isascii() and key.isdigit() and int(key) < num_loaders):
        raise _wrong(f"{where} has a state of loader '{key}', of {num_loaders} loaders")
    check_number(f"state of a checkpoint: {where}.loaders['{key}'].step", step)
    try:
        state = base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise _wrong(f"{where}: the state of loader {key} is not base64") from None
    if len(state) > MAX_STATE_BYTES:
        raise _wrong(f"{where}: the state of loader {key} has {len(state)} bytes; at most "
                     f"{MAX_STATE_BYTES} can be")
    return int(key), LoaderState(step, state)
