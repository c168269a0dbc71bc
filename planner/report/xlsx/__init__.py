"""The sheets of capacity.xlsx."""
