"""Configurations that others wrote, said in the spec language: transformers' ``config.json`` and the argument lists of trainers.

What a key means and what its absence means differs from model type to model type, so each type has a function of its own, read off the
class that the type names (transformers 5.24, or the code published with the weights where transformers has no class). Nothing is guessed: a
type without a function, a size that is missing and a value that the spec language cannot say are refused by name.
"""

from planner.spec.importer.families import REFUSED, SUPPORTED
from planner.spec.importer.files import first_problem, import_file, locate, name_of, spec_source
from planner.spec.importer.huggingface import from_huggingface, read_huggingface
from planner.spec.importer.reader import Imported, UnsupportedConfigError
from planner.spec.importer.sources import is_config, read_config
from planner.spec.importer.write import spec_text

__all__ = [
    "REFUSED",
    "SUPPORTED",
    "Imported",
    "UnsupportedConfigError",
    "first_problem",
    "from_huggingface",
    "import_file",
    "is_config",
    "locate",
    "name_of",
    "read_config",
    "read_huggingface",
    "spec_source",
    "spec_text",
]
