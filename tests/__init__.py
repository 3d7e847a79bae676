"""Tests: unit, component, end to end on the real parts, the demo and the benchmarks."""
