"""What if: grids of settings, the largest that fits, candidates side by side, shapes of a size."""
