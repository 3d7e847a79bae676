"""Kubernetes' book beside Slurm's: where the two disagree, and what to do. Pure."""
