"""The options of a layout, in JSON form, from the arguments of the reference's functions."""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional

from .scalars import number_of

JsonForm = dict[str, Any]


def shared_options(padding_token_id: Any, extra_streams: Optional[list[JsonForm]] = None
                   ) -> JsonForm:
    options: JsonForm = {}
    if padding_token_id is not None:  # None: an error where padding is needed (contract T23)
        options["padding_token_id"] = _token_id(padding_token_id)
    if extra_streams:
        options["extra_streams"] = extra_streams
    return options


def _token_id(value: Any) -> Any:
    number = number_of(value, "padding_token_id")
    if isinstance(number, int) or isinstance(number, float) and number.is_integer():
        return int(number)
    return number  # which the options then refuse


def extra_streams(seq_axes: Optional[Mapping[str, int]],
                  pads: Optional[Mapping[str, Any]] = None) -> list[JsonForm]:
    """Of names with their sequence axes; a pad that is not given is the layout's.

    TypeError: a pad that is no number.
    """
    given = pads or {}
    return [{"name": name, "seq_axis": axis} | (_pad(name, given[name]) if name in given else {})
            for name, axis in (seq_axes or {}).items()]


def _pad(name: str, value: Any) -> JsonForm:
    pad = number_of(value, f"the pad of stream '{name}'")
    if isinstance(pad, complex):
        raise TypeError(f"the pad of stream '{name}' is {pad}; pads are no complex numbers")
    if not isinstance(pad, float):
        return {"int_pad": int(pad)}
    if math.isfinite(pad):
        return {"float_pad": pad}
    return {"float_pad": "NaN" if math.isnan(pad) else "Infinity" if pad > 0 else "-Infinity"}


def int_or_none(number: Any) -> Optional[int]:
    """As the reference reads a multiple: nothing, 0 and False are not given."""
    return int(number) if number else None


def with_layout(options: JsonForm, name: str, **fields: Any) -> JsonForm:
    """`options` with the layout `name`; fields that are None are absent."""
    return options | {name: {key: value for key, value in fields.items() if value is not None}}
