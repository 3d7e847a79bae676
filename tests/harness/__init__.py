"""The real stack that tests, demo and benchmarks run on: Kubernetes, kwok and Slurm on one machine.

``bootstrap``, ``cache``, ``progress``, ``gobuild``, ``image``, ``engine`` and what they import use
the standard library only, because they run before the virtual environment exists.
"""
