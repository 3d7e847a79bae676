"""Faults of the service that the simulation has found and that are not mended yet.

Each switch keeps schedules or checks out that would only find the same again. Take it out with the
fault.
"""

from typing import Final

OWN_SLOT: Final = True
"""A replaced pod gets the first free slot of its gang, not its own."""
LATE_RELEASE: Final = True
"""A release that lands after the next attempt's release of the same pod overwrites it."""
TAKEN_OVER_IN_PART: Final = True
"""A job that takes the place of a lost one has room for the pods that are there, not for all."""
STALE_STAMP: Final = True
"""A stamp is written by number alone, though the number is known to be another gang's by then."""
