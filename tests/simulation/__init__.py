"""A deterministic simulation of Sluice: the real service against models of everything around it.

See docs/simulation.md.
"""
