"""Numbers in fewer bits than float32, to the bit as torch converts them: nearest, ties to even.

What is too large becomes infinity, or the largest number where a format has no infinity.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Narrow:
    """A float with a sign bit, `exponent` bits and `mantissa` bits. `largest`: what an overflow and infinity become.
    `nan`: one of the patterns of not-a-number; which one torch writes depends on the processor.
    """

    exponent: int
    mantissa: int
    largest: int
    nan: int

    @property
    def bytes(self) -> int:
        return (1 + self.exponent + self.mantissa) // 8

    def bits(self, value: float) -> int:
        """The pattern of a float32 value. It is rounded once, so a wider value is to be made a float32 before."""
        if math.isnan(value):
            return self.nan
        sign = int(math.copysign(1.0, value) < 0) << self.exponent + self.mantissa
        if value == 0 or math.isinf(value):
            return sign | (self.largest if value else 0)
        bias = (1 << self.exponent - 1) - 1
        # Below the smallest normal number the step between neighbours no longer shrinks.
        power = max(math.frexp(value)[1] - 1, 1 - bias)
        steps = round(math.ldexp(abs(value), self.mantissa - power))
        # The leading 1 of `steps` adds one to the exponent field, and so does a carry out of the mantissa.
        return sign | min((power + bias - 1 << self.mantissa) + steps, self.largest)


FORMATS = {
    "float16": Narrow(exponent=5, mantissa=10, largest=0x7C00, nan=0x7E00),
    "bfloat16": Narrow(exponent=8, mantissa=7, largest=0x7F80, nan=0x7FC0),
    "fp8_e4m3": Narrow(exponent=4, mantissa=3, largest=0x7E, nan=0x7F),
    "fp8_e5m2": Narrow(exponent=5, mantissa=2, largest=0x7C, nan=0x7F),
}
