"""Faults of the service that the simulation has found and that are not mended yet.

Each switch keeps schedules or checks out that would only find the same again. Take it out with the
fault.
"""

from typing import Final

STALE_STAMP: Final = True
"""A stamp is written by number alone, though the number is known to be another gang's by then."""
