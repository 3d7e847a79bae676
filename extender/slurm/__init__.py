"""The port to Slurm (``port``) and its adapters."""
