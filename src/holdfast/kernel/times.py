"""Three kinds of time, each with its own type, so that one is never taken for another.

- `Instant`: milliseconds since 1970, by the store's clock or by the wall clock.
- `Millis`: a duration.
- `Steady`: a reading of the machine's steady clock. It compares only with readings of the same start of the machine,
  and never with an instant.

At run time they are the numbers themselves. What may be computed with which is for the type checker, in `times.pyi`:
an instant and a duration make an instant, two instants make a duration, and what makes no sense is an error. The result
of arithmetic with plain numbers is a plain number, which has to be given its type by name: `Millis(2 * seconds)`.
"""

from __future__ import annotations

from typing import NewType

Instant = NewType("Instant", int)
Millis = NewType("Millis", int)
Steady = NewType("Steady", float)

NO_TIME = Millis(0)
EPOCH = Instant(0)  # earlier than everything
END_OF_TIME = Instant(2**53)  # later than everything; the largest number that Lua has exactly
