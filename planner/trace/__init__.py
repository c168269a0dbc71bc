"""How the model runs: one forward pass over shaped tensors, recorded as a trace."""
