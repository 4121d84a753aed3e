"""The options of a layout, in JSON form, from the arguments of the reference's functions."""

from __future__ import annotations

from typing import Any, Mapping, Optional

JsonForm = dict[str, Any]


def shared_options(padding_token_id: Optional[int],
                   extra_streams: Optional[list[JsonForm]] = None) -> JsonForm:
    options: JsonForm = {}
    if padding_token_id is not None:  # None: an error where padding is needed (contract T23)
        options["padding_token_id"] = padding_token_id
    if extra_streams:
        options["extra_streams"] = extra_streams
    return options


def extra_streams(seq_axes: Optional[Mapping[str, int]],
                  pads: Optional[Mapping[str, Any]] = None) -> list[JsonForm]:
    """Of names with their sequence axes; a pad that is not given is the layout's."""
    streams = []
    for name, axis in (seq_axes or {}).items():
        stream: JsonForm = {"name": name, "seq_axis": axis}
        pad = (pads or {}).get(name)
        if isinstance(pad, float):
            stream["float_pad"] = pad
        elif pad is not None:
            stream["int_pad"] = int(pad)
        streams.append(stream)
    return streams


def int_or_none(number: Any) -> Optional[int]:
    """As the reference reads a multiple: nothing, 0 and False are not given."""
    return int(number) if number else None


def with_layout(options: JsonForm, name: str, **fields: Any) -> JsonForm:
    """`options` with the layout `name`; fields that are None are absent."""
    return options | {name: {key: value for key, value in fields.items() if value is not None}}
