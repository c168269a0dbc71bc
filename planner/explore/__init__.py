"""What if: sweep, fit, compare, size."""
