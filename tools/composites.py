"""Write planner/importer/formats/composites.json, what the installed transformers makes of composite configurations.

``types`` has each composite type whose text part can be read: the name of the text part (``part``) and its type, the other parts,
whether that type applies whatever the file says (``fixed``), the values of absent keys that differ from those of the type's own class
(``defaults``), and whether the LM head is tied (``ties``): a letter for each pair of the key ``tie_word_embeddings`` at the top and in
the text part, both absent, true or false, in this order. ``texts`` has the values of absent keys that are required of a text model, and
of ``tie_word_embeddings``.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from planner.importer.formats.composite import STATES, TABLE
from planner.importer.keys import uses_of
from planner.importer.types import FAMILIES, encoder_decoders, encoders

FILE = Path(__file__).parent.parent / "planner" / "importer" / "formats" / TABLE
TWINS = Path(__file__).parent.parent / "tests" / "data" / "twins.jsonl"
TIE = "tie_word_embeddings"

Json = dict[str, Any]
TEXTS = {name: row for name, row in FAMILIES.items() if name not in {**encoders.ROWS, **encoder_decoders.ROWS}}
"""Types of text parts. An encoder in a composite is a decoder with cross-attention, or feeds one."""


def required(text_type: str) -> list[str]:
    """Return the names of the keys without which a configuration of a type cannot be read."""
    return sorted({name for name, absent in uses_of(TEXTS[text_type].settings) if absent.startswith("required")})


def texts() -> Iterator[tuple[str, Json]]:
    """Yield the defaults of the required keys of each type with a class."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for name in sorted(TEXTS):
        if name in CONFIG_MAPPING:
            made = CONFIG_MAPPING[name]()
            values = {key: getattr(made, key, None) for key in (*required(name), TIE)}
            yield name, {key: value for key, value in values.items() if isinstance(value, (int, str))}


def types() -> Iterator[tuple[str, Json]]:
    """Yield the composite types whose text part is of a supported type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for name in sorted(CONFIG_MAPPING.keys()):
        if name in TEXTS or not _class(name):
            continue
        try:
            made = described(name)
        except Exception as error:  # noqa: BLE001 - a class that cannot be made from the defaults of its parts
            print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
            continue
        if made:
            yield name, made


def described(name: str) -> Json | None:
    """Return what is said of a composite type; None if it has no text part of a supported type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        default = CONFIG_MAPPING[name]()
        text = default.get_text_config(decoder=True)
    except Exception:  # noqa: BLE001 - a class without defaults is no composite that can be described
        return None
    part = next((key for key in getattr(default, "sub_configs", {}) if getattr(default, key, None) is text), None)
    if part is None or text.model_type not in TEXTS:
        return None
    made: Json = {"part": part, "type": text.model_type, "others": [key for key in default.sub_configs if key != part]}
    specified = type(default).sub_configs_defaults.get(part)
    if hasattr(getattr(specified, "config_class", specified), "model_type"):
        made["fixed"] = True
    differing = _differences(name, part, {"model_type": text.model_type}) | _differences(name, part, _small(text.model_type))
    return made | ({"defaults": differing} if differing else {}) | {"ties": "".join(_ties(name, part, text.model_type))}


def _differences(name: str, part: str, given: Json) -> Json:
    """Return the values of the keys that a composite sets otherwise than the class of its text part does."""
    from transformers import AutoConfig

    made = getattr(AutoConfig.for_model(name, **{part: dict(given)}), part).to_dict()  # some classes change the mapping
    alone = AutoConfig.for_model(**given).to_dict()
    read = (key for key in TEXTS[given["model_type"]].single if "." not in key and key != TIE)
    return {key: made[key] for key in read if isinstance(made.get(key), (int, str)) and made[key] != alone.get(key)}


def _small(text_type: str) -> Json:
    """Return a small configuration of a type."""
    twins: Iterator[Json] = map(json.loads, TWINS.read_text(encoding="utf-8").splitlines())
    return next((twin for twin in twins if twin["model_type"] == text_type), {"model_type": text_type})


def _ties(name: str, part: str, text_type: str) -> Iterator[str]:
    """Yield a letter for each pair of states; of a class that cannot be built here, by its configuration."""
    from transformers import AutoConfig

    small = _small(text_type)
    bare = {"model_type": text_type}
    for top, inner in product(STATES, STATES):
        above, inside = ({} if value is None else {TIE: value} for value in (top, inner))
        try:
            own = {key: value for key, value in small.items() if key != TIE}
            yield "ft"[_is_tied(name, AutoConfig.for_model(name, **{part: own | inside}, **above))]
        except Exception:  # noqa: BLE001 - whatever the class raises
            yield "ft"[bool(getattr(AutoConfig.for_model(name, **{part: bare | inside}, **above), TIE, False))]


def _is_tied(name: str, config: Any) -> bool:  # noqa: ANN401
    import torch

    with torch.device("meta"):
        model = _class(name).from_config(config)
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def _class(name: str) -> Any:  # noqa: ANN401
    import transformers
    from transformers.models.auto import modeling_auto

    automatic: Mapping[str, Any] = {
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES": transformers.AutoModelForImageTextToText,
        "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES": transformers.AutoModelForMultimodalLM,
    }
    return next((made for names, made in automatic.items() if name in getattr(modeling_auto, names)), None)


def main() -> int:
    """Write the table."""
    warnings.simplefilter("ignore")
    logging.disable()
    lines = [f'"{key}": {{\n{_rows(rows)}\n}}' for key, rows in (("types", types()), ("texts", texts()))]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")
    return 0


def _rows(rows: Iterator[tuple[str, Json]]) -> str:
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows)


if __name__ == "__main__":
    sys.exit(main())
