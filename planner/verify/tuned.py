"""Models with adapters and frozen weights: peft's own modules around a model, and bitsandbytes' linears in it.

A fake device has no kernels of bitsandbytes. Their stand-in unpacks the weight as the CUDA kernel of ``gemm_4bit`` does for more than
``packed.ROWS`` rows (bitsandbytes 0.50.2, backends/cuda/ops.py). What prepare_model_for_kbit_training and the loading of a model do is
done here.
"""

from __future__ import annotations

import copy
import importlib
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it

from planner.capacity.figures import EVERYTHING
from planner.capacity.parameters import parameters
from planner.spec.precision import DTYPES, RECIPES
from planner.spec.records import Adapters, Base, Model, Training
from planner.trace import packed, trained
from planner.trace.decoder import trace
from planner.trace.packing import NESTED
from planner.verify import CannotMeasureError
from planner.verify.measured import pattern

Names = Callable[[str], str]
VIRTUAL = {"prompt": "PromptTuningConfig", "prefix": "PrefixTuningConfig"}
PARTS_OF_ADAPTERS = re.compile(r"\.(lora_A|lora_B|lora_dropout|lora_magnitude_vector|modules_to_save|embedding)$")
"""Modules of peft whose operators belong to the module that they adapt."""


def package(name: str) -> ModuleType:
    """Import a module of peft or bitsandbytes. Raises ``CannotMeasureError`` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CannotMeasureError(f"{name.partition('.')[0]} cannot be imported ({error}); pip install modelplan[tuning]") from error


def tunes(training: Training) -> bool:
    """Whether some weights are frozen, or adapters train."""
    return training.train != EVERYTHING


def build(module: nn.Module, our_name: Names, model: Model, training: Training) -> tuple[nn.Module, Names]:
    """Return the module with its adapters, or with the weights that do not train frozen, and our names for its parts."""
    if training.reentrant:
        raise CannotMeasureError("reentrant recomputation starts PyTorch's own engine, which tensors without data do not run")
    kind, base, device = training.adapters, training.base, next(module.parameters()).device
    if kind is None:
        freeze(module, model, training, our_name)
    else:
        module.requires_grad_(requires_grad=False)
    if base and base.format != "none":
        pack(module, base, our_name)
    if base and base.prepare:
        for weight in module.parameters():
            weight.data = weight.data.float() if weight.is_floating_point() else weight.data
    if kind:
        module = adapted(module, kind, training, our_name, device)
        our_name = names_of(module, our_name, outer="base_model" if kind.type in VIRTUAL else "base_model.model")
    if training.implementation.startswith("transformers"):
        if training.recompute == "full":
            options = {"use_reentrant": training.reentrant, "preserve_rng_state": False}
            module.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)  # type: ignore[operator] # of transformers
        if training.input_gradients:
            module.get_input_embeddings().register_forward_hook(InputGradients(module))  # type: ignore[operator] # of transformers
    return module, our_name


class InputGradients:
    """Makes embedded tokens require a gradient, as enable_input_require_grads does, and keeps them: the graph of the loss does."""

    def __init__(self, module: nn.Module) -> None:
        self.kept: list[Tensor] = []
        module.kept_inputs = self.kept  # type: ignore[assignment] # until the step ends

    def __call__(self, _module: nn.Module, _inputs: object, output: Tensor) -> None:
        """Keep the embedded tokens of this pass, if they are a leaf."""
        self.kept[:] = [output.requires_grad_()] if output.is_leaf else []


def kept_inputs(module: nn.Module) -> list[Tensor]:
    """Return the embedded tokens that the graph of the loss keeps until the step ends."""
    return getattr(module, "kept_inputs", [])


def freeze(module: nn.Module, model: Model, training: Training, our_name: Names) -> None:
    """Freeze the weights that do not train by the planner's rule."""
    components = {pattern(weight.name): weight.component for weight in parameters(trace(model, training)).weights}
    for name, weight in module.named_parameters():
        path, _, last = our_name(name).rpartition(".")
        weight.requires_grad_(trained.trains(training.train, path, components[pattern(our_name(name))], last))


def pack(module: nn.Module, base: Base, our_name: Names) -> None:
    """Replace the linears of layers by bitsandbytes', whose weights are quantized."""
    nn_of, functional = package("bitsandbytes.nn"), package("bitsandbytes.functional")
    for name, one in list(module.named_modules()):
        if not is_linear(one) or not trained.in_layer(our_name(name)):
            continue
        weight = one.weight.data if isinstance(one, nn.Linear) else one.weight.data.T.contiguous()
        with mock.patch("bitsandbytes.nn.modules.Params4bit", return_value=None):  # which holds no fake tensor
            made = nn_of.Linear4bit(*weight.shape[::-1], bias=False, compute_dtype=getattr(torch, DTYPES[base.compute_dtype]))
        data, state = functional.quantize_4bit(weight, compress_statistics=base.double_quant, quant_type=base.format)
        made.weight = nn.Parameter(data, requires_grad=False)
        made.weight.quant_state, made.weight.quant_type, made.weight.compress_statistics = state, base.format, base.double_quant
        made.quant_state = state  # which bitsandbytes reads if the weight is replaced, as FSDP2 does
        made.bias = one.bias
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, made)
    functional.name2qmap.clear()  # tables from which each state has a copy
    module.is_loaded_in_4bit = True  # type: ignore[assignment] # as transformers sets it


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear, or GPT-2's."""
    return isinstance(module, nn.Linear) or type(module).__name__ in ("Conv1D", "Linear4bit")


def states(module: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors of packed weights beside their elements: scales, tables and offsets."""
    for part in module.modules():
        state = getattr(part, "quant_state", None)
        if state is not None:
            yield from (state.absmax, state.code)
        if state is not None and state.nested:
            yield from (state.offset, state.state2.absmax, state.state2.code)


def base_of(module: nn.Module) -> nn.Module:
    """Return the model inside peft's."""
    base: Any = getattr(module, "base_model", None)
    if base is None or not type(module).__name__.startswith("Peft"):
        return module
    return getattr(base, "model", base) if not hasattr(module, "prompt_encoder") else base  # type: ignore[no-any-return] # of peft


def elements(weight: Tensor) -> int:
    """Return how many elements of a weight one of its stored elements has: two if it is packed."""
    return 2 if weight.dtype == torch.uint8 else 1


def adapted(module: nn.Module, kind: Adapters, training: Training, our_name: Names, device: torch.device) -> nn.Module:
    """Return peft's model around the module."""
    peft, layers = package("peft"), package("peft.tuners.tuners_utils")
    of_transformers = training.implementation.startswith("transformers")
    if kind.type in VIRTUAL and not of_transformers:
        raise CannotMeasureError("prompts are measured under implementation transformers only")
    task = {"task_type": "CAUSAL_LM"} if of_transformers else {}
    config = config_of(peft, kind, training, module, our_name, task)
    with ExitStack() as stack:
        stack.enter_context(torch.device(device))
        stack.enter_context(mock.patch.object(nn.Module, "to", lambda self, *_, **__: self))  # fake tensors stay where they are
        stack.enter_context(mock.patch.object(layers.BaseTunerLayer, "_move_adapter_to_device_of_base_layer", return_value=None))
        stack.enter_context(mock.patch("copy.deepcopy", copied))
        stack.enter_context(mock.patch("peft.tuners.lora.dora.deepcopy", lambda module: module))  # only reads it
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # peft's, about settings that it corrects or does not need
        made: nn.Module = peft.get_peft_model(module, config)
    made.train()
    if kind.dtype == "base":
        cast_adapters(made, training)
    if kind.type in VIRTUAL:
        made.prompt_tokens = FreshIds(kind.virtual_tokens, device)  # type: ignore[assignment] # a mapping
    return made


def cast_adapters(module: nn.Module, training: Training) -> None:
    """Cast adapters to the dtype of the weights beside them, which is the dtype of products beside packed ones, as peft does."""
    of_prompts = dtype_of_base(training)
    for name, one in module.named_modules():
        beside = getattr(one, "base_layer", None)
        if beside is not None:
            weight = one.get_param() if hasattr(one, "get_param") else beside.weight  # of experts, or of a linear
            dtype = getattr(beside, "compute_dtype", weight.dtype)
        elif name.startswith("prompt_encoder"):
            dtype = of_prompts
        else:
            continue
        for stored in one.parameters():
            stored.data = stored.data.to(dtype) if stored.requires_grad else stored.data


DEEP_COPY = copy.deepcopy


def copied(value: Any, memo: dict[int, Any] | None = None) -> Any:  # noqa: ANN401 - as copy.deepcopy
    """Copy a module with new weights, which have no data: a copy of a fake tensor would be of another fake device."""
    if not isinstance(value, nn.Module):
        return DEEP_COPY(value, memo)
    made = copy.copy(value)
    made._parameters = {name: one if one is None else nn.Parameter(torch.empty_like(one)) for name, one in value._parameters.items()}  # noqa: SLF001
    return made


class FreshIds(dict[str, Tensor]):
    """The ids of virtual tokens, made in each pass: peft has them on the CPU."""

    def __init__(self, count: int, device: torch.device) -> None:
        super().__init__()
        self.count, self.device = count, device

    def __getitem__(self, _: str) -> Tensor:
        return torch.arange(self.count, device=self.device)


def config_of(peft: ModuleType, kind: Adapters, training: Training, module: nn.Module, our_name: Names, task: dict[str, str]) -> Any:  # noqa: ANN401 - a configuration of peft, which has no types here
    """Return peft's configuration of the adapters."""
    if kind.type in VIRTUAL:
        return getattr(peft, VIRTUAL[kind.type])(num_virtual_tokens=kind.virtual_tokens, **task)
    named = [(name, *our_name(name).rpartition(".")[::2]) for name, one in module.named_modules() if is_linear(one)]
    linears = [name for name, path, last in named if trained.targets(kind, f"{path}.{last}", last)]
    embedding = [name for name, one in module.named_modules() if isinstance(one, nn.Embedding) and trained.of_embedding(kind)][:1]
    saved = {"embedding": "model.embed_tokens", "head": "lm_head"}
    copies = [name for name, _ in module.named_modules() if our_name(name) in [saved[word] for word in training.also_train]] or None
    if kind.type == "ia3":
        feeds = [name for name, _, last in named if name in linears and any(last in trained.linears(word) for word in kind.feedforward)]
        return peft.IA3Config(target_modules=linears, feedforward_modules=feeds, modules_to_save=copies, **task)
    routed = any(type(one).__name__.endswith("Experts") for one in module.modules())
    return peft.LoraConfig(
        r=kind.rank,
        rank_pattern={name: trained.rank_of(kind, our_name(name).rpartition(".")[2]) for name in linears + embedding},
        target_modules=trained.ALL if routed and trained.ALL in kind.targets else linears + embedding,
        lora_dropout=float(kind.dropout),
        use_dora=kind.type == "dora",
        use_rslora=kind.type == "rslora",
        modules_to_save=copies,
        **task,
    )


def names_of(module: nn.Module, our_name: Names, outer: str) -> Names:
    """Return our names for the parts of peft's model, which has the model under the name ``outer``.

    Adapters of a stack of experts have its name.
    """
    stacks = {name: str(one.parameter_name) for name, one in module.named_modules() if type(one).__name__ == "ParamWrapper"}

    def name_of(name: str) -> str:
        stack = max((one for one in stacks if name.startswith(f"{one}.lora_")), key=len, default="")
        if stack and stacks[stack] != "weight":
            name = f"{stack}.{stacks[stack]}{name.removeprefix(stack)}"
        for part in (".default", ".base_layer", ".original_module"):
            name = name.replace(part, "")
        inner = "" if outer.startswith(name) else PARTS_OF_ADAPTERS.sub("", name.removeprefix(f"{outer}."))
        return f"model.{inner}" if inner.startswith("prompt_encoder") else our_name(inner)

    return name_of


def shapes(module: nn.Module, our_name: Names) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by our name, matrices as [out, in], packed weights unpacked."""
    turned = {f"{name}.weight" for name, one in module.named_modules() if type(one).__name__ == "Conv1D"}
    found = {}
    for name, weight in module.named_parameters():
        state = getattr(weight, "quant_state", None)
        shape = tuple(state.shape if state else weight.shape)
        found[our_name(name)] = shape[::-1] if name in turned else shape
    return found


def dtype_of_base(training: Training) -> torch.dtype:
    """Return the dtype of weights that are neither packed nor of adapters."""
    base = training.base
    dtype: torch.dtype = getattr(torch, DTYPES[base.dtype] if base and base.dtype else RECIPES[training.precision].weights)
    return dtype


@contextmanager
def kernels(training: Training) -> Iterator[None]:
    """Run products by packed weights on fake tensors."""
    if not training.base or training.base.format == "none":
        yield
        return
    package("bitsandbytes")
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.ops.bitsandbytes, "gemm_4bit", SimpleNamespace(default=product_by_unpacking)))
        stack.enter_context(mock.patch("bitsandbytes.nn.modules.fix_4bit_weight_quant_state_from_module", with_state))
        stack.enter_context(mock.patch.dict(package("bitsandbytes.functional").name2qmap, clear=True))  # tables of an earlier fake device
        stack.enter_context(mock.patch.object(package("peft.tuners.lora.dora"), "dequantize_module_weight", unpacked))
        yield


def with_state(module: Any) -> None:  # noqa: ANN401 - a linear of bitsandbytes
    """Give the weight of a packed linear its state, which a weight gathered by FSDP2 lacks."""
    module.weight.quant_state = module.quant_state


def unpacked(module: nn.Module) -> Tensor:
    """Return a module's weight, unpacked if it is packed."""
    weight: Tensor = module.weight  # type: ignore[assignment] # of a linear
    state = getattr(weight, "quant_state", None)
    return package("bitsandbytes.functional").dequantize_4bit(weight, state) if state else weight


def product_by_unpacking(
    a: Tensor,
    b: Tensor,
    shape: tuple[int, int],
    absmax: Tensor,
    blocksize: int,
    quant_type: str,
    *,
    bias: Tensor | None = None,
    absmax_8bit: Tensor | None = None,
    absmax_code: Tensor | None = None,
    absmax_offset: Tensor | None = None,
) -> Tensor:
    """Multiply a [.., i] by a packed weight b of this shape [o, i]: unpacked for many rows, else inside the kernel."""
    run = torch.ops.bitsandbytes
    if a.numel() // a.shape[-1] <= packed.ROWS:
        return F.linear(a, a.new_empty(1).expand(shape), bias)
    scales = absmax
    if absmax_8bit is not None:
        narrow = run.dequantize_blockwise(absmax_8bit, absmax, absmax_code, NESTED, torch.float32)
        scales = narrow + absmax_offset
    return F.linear(a, run.dequantize_4bit(b, scales, blocksize, quant_type, shape, a.dtype), bias)
