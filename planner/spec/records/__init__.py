"""What a spec says, resolved: frozen records with every default filled in, whose fields state the keys of the language.

Sizes are annotated ``int``; the trace is also fed records whose sizes are symbols (see ``planner.sizes``), which only add, multiply and
floor-divide. Whatever *exists* is a string or a bool; whatever is *counted* is a size.
"""

from planner.spec.records.attention import *  # noqa: F403 -
from planner.spec.records.document import *  # noqa: F403
from planner.spec.records.mixers import *  # noqa: F403
from planner.spec.records.model import *  # noqa: F403
from planner.spec.records.parts import *  # noqa: F403
from planner.spec.records.training import *  # noqa: F403
