"""Sluice: a kube-scheduler extender that lets slurmctld decide where gangs of pods run."""

__version__ = "0.1.0"
