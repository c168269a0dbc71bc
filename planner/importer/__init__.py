"""Other programs' configurations as specs: transformers' ``config.json`` and the arguments of trainers.

A key, or its absence, means something else in each model type, so each type has a row of its own, read off the class that the type names
(transformers 5.24, or the code published with the weights if transformers has no class). Nothing is guessed: a type without a row, a
missing size and an unsupported value are errors.
"""
