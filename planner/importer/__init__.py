"""Configurations that others wrote, said in the spec language: transformers' ``config.json`` and the argument lists of trainers.

What a key means and what its absence means differs from model type to model type, so each type has a function of its own, read off the
class that the type names (transformers 5.24, or the code published with the weights where transformers has no class). Nothing is guessed: a
type without a function, a size that is missing and a value that the spec language cannot say are refused by name.
"""
