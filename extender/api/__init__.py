"""HTTP, thin: one module per caller."""
