"""Faults of the service that the simulation has found and that are not mended yet.

Each switch keeps schedules or checks out that would only find the same again. Take it out with the
fault.
"""

from typing import Final

FOREIGN_NUMBER: Final = True
"""The end of another's job that got the number of a lost one is taken for its end."""
