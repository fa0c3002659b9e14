"""What workers answer: compressed JSON, which holds values and can run nothing.

The client believes a worker's numbers when others say the same; it must not run what a worker
sends before that.  dask's own messages are another matter (SECURITY.md).
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Hashable
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from errors import InfraError
from text import clean

# Several consoles and results of the largest size, and a third more for being text.
LARGEST = 1 << 30
LONGEST_WORDS = 2000
Value = TypeVar("Value")


def packed(value: object) -> bytes:
    """A dataclass of plain values, bytes and other such dataclasses, as it travels."""
    return zlib.compress(_adapter(cast(Hashable, type(value))).dump_json((value,)), 1)


def words(error: Exception) -> str:
    """What an error says, in one line that JSON can hold."""
    return clean(str(error), LONGEST_WORDS)


def unpacked(kind: type[Value], data: bytes) -> Value:
    """What came, if it is of this kind.

    Raises:
        InfraError: it is not.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, LARGEST)
        if reader.unconsumed_tail or not reader.eof:
            raise ValueError(f"it has more than {LARGEST >> 20} MiB, or no end")
        (value,) = _adapter(cast(Hashable, kind)).validate_json(text)
    except (zlib.error, ValueError, ValidationError) as error:
        raise InfraError(
            f"a worker's answer cannot be read: {words(error)}", where="fleet"
        ) from None
    result: Value = value
    return result


@functools.cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    # In a tuple: an adapter of a dataclass itself is given no configuration.
    coded = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="null")
    return TypeAdapter(tuple[kind], config=coded)  # type: ignore[valid-type]
