import pytest

pytest.register_assert_rewrite("tests.unit.slurm.contract")
