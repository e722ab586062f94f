"""Narrow floats have the bits that torch gives them."""

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sim.worker.narrow import FORMATS
from tests.sim.worker.shapes import DATA

# float32 patterns and what torch 2.13.0 made of them; written by torch itself.
VECTORS: dict[str, list[str]] = json.loads((DATA / "narrow.json").read_text())
VALUES = [struct.unpack(">f", bytes.fromhex(pattern))[0] for pattern in VECTORS["float32"]]


@pytest.mark.parametrize("name", FORMATS)
def test_bits_are_torchs(name: str) -> None:
    narrow = FORMATS[name]
    for value, pattern in zip(VALUES, VECTORS[name], strict=True):
        if math.isnan(value):
            fields = narrow.exponent + narrow.mantissa
            assert narrow.bits(value) & (1 << fields) - 1 > narrow.largest
        else:
            assert f"{narrow.bits(value):0{2 * narrow.bytes}x}" == pattern, value


@given(st.floats(width=32, allow_nan=False))
def test_sixteen_bits_are_the_standard_librarys(value: float) -> None:
    try:
        expected = struct.unpack(">H", struct.pack(">e", value))[0]
    except OverflowError:
        expected = 0x7C00 | int(value < 0) << 15
    assert FORMATS["float16"].bits(value) == expected


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_bfloat_is_the_upper_half_of_a_float(value: float) -> None:
    word = struct.unpack(">I", struct.pack(">f", value))[0]
    assert FORMATS["bfloat16"].bits(value) == word + 0x7FFF + (word >> 16 & 1) >> 16
