"""Time of a training step, and of a whole training. The only package whose figures are not exact: each time has a range."""
