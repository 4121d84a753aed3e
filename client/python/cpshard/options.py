"""How a batch is sharded, in any of the forms that the package takes."""

from __future__ import annotations

import functools
import json
from typing import Any, Mapping, Union

from google.protobuf import json_format
from google.protobuf.message import Message

from ._proto import options_pb2
from .errors import Error, invalid

# A mapping in protobuf's JSON form, {"round_robin": {}}; the same as JSON text; the name of a
# layout without options of its own, "round_robin"; or the message itself (of any generated module).
Options = Union[Mapping[str, Any], str, Message]


def options_of(options: Options) -> Any:
    """The ShardingOptions message, not to be changed: those of equal text are one. InvalidArgument:
    no such option or layout, or no layout."""
    if isinstance(options, Message):
        return _read(options)
    if not isinstance(options, (str, Mapping)):
        raise invalid(f"options are a {type(options).__name__}; give a mapping, JSON text, the "
                      'name of a layout or a message: {"round_robin": {}}')
    try:
        return _of_text(options if isinstance(options, str) else json.dumps(dict(options)))
    except (TypeError, ValueError) as error:
        if isinstance(error, Error):
            raise
        raise invalid(f"options: {error}") from None


@functools.lru_cache(maxsize=64)
def _of_text(text: str) -> Any:
    return _read(text)


def _read(options: Union[str, Message]) -> Any:
    message = options_pb2.ShardingOptions()
    try:
        if isinstance(options, Message):
            if options.DESCRIPTOR.full_name != message.DESCRIPTOR.full_name:
                raise invalid(f"options are a {options.DESCRIPTOR.full_name}, not a "
                              f"{message.DESCRIPTOR.full_name}")
            message.ParseFromString(options.SerializeToString())
        elif not options.lstrip().startswith("{"):
            json_format.ParseDict({options: {}}, message)
        else:
            json_format.Parse(options, message)
    except (json_format.ParseError, AttributeError, TypeError) as error:
        raise invalid(f"options: {error}") from None
    if message.WhichOneof("layout") is None:
        known = message.DESCRIPTOR.oneofs_by_name["layout"].fields
        raise invalid("options name no layout; one of " + ", ".join(field.name for field in known))
    return message
