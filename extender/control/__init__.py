"""The loops: what was seen goes to a pure decision, what was decided is carried out."""
