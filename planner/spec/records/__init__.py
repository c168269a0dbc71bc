"""A resolved spec: frozen records with every default filled in. Their fields define the keys of the spec language.

Sizes are annotated ``int``. The trace also accepts records whose sizes are symbols (see ``planner/trace/sizes.py``), which only add,
multiply and floor-divide. Whatever *exists* is a string or a bool; whatever is *counted* is a size.
"""

from planner.spec.records.adapters import *  # noqa: F403 - each module holds records and their names only
from planner.spec.records.attention import *  # noqa: F403
from planner.spec.records.document import *  # noqa: F403
from planner.spec.records.layout import *  # noqa: F403
from planner.spec.records.mixers import *  # noqa: F403
from planner.spec.records.model import *  # noqa: F403
from planner.spec.records.model_types import *  # noqa: F403
from planner.spec.records.parts import *  # noqa: F403
from planner.spec.records.serving import *  # noqa: F403
from planner.spec.records.training import *  # noqa: F403
