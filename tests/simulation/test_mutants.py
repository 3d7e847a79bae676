"""The simulation finds what is broken on purpose. docs/simulation.md"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.simulation.mutants import ROOT, Mutant, hunt
from tests.simulation.mutations import MUTANTS


def test_every_mutant_is_caught_by_an_invariant_that_it_breaks() -> None:
    with ThreadPoolExecutor(2) as pool:
        caught = list(pool.map(hunt, MUTANTS))
    survivors = [(c.mutant.name, c.invariant) for c in caught if not c.well]
    assert survivors == []
    assert len(caught) >= 15


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_s_text_stands_once_in_the_code(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, "write the mutant anew"


def test_names_tell_mutants_apart() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
