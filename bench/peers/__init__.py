"""The contenders, a module each. A module has

    versions() -> {package: version}
    variants(problem) -> [Variant, …]   the ways to compute it that are worth a try

and is imported in a process of its own, so that no library's threads spin against another's.
"""

import importlib
import time
from dataclasses import dataclass
from typing import Callable

# name: (module, package that has to be importable)
LIBRARIES = {
    "qkv": ("peers.ours", "qkv"),
    "torch": ("peers.pytorch", "torch"),
    "ort": ("peers.onnx_runtime", "onnxruntime"),
    "openvino": ("peers.open_vino", "openvino"),
    "jax": ("peers.jax_cpu", "jax"),
}
OF_BLOCKS = ("qkv", "torch", "ort", "openvino")  # those that have a module in peers/blocks


class Unsupported(Exception):
    """This library, or this way to call it, cannot do what the problem asks for."""


@dataclass
class Prepared:
    """Ready to run: compiled, with its data in the order that it likes."""

    run: Callable  # run(times): that many calls, done when it returns; what each took, unless several are under way at once
    output: Callable  # the last output, as a NumPy array [B, Hq, T, Dv]


@dataclass
class Variant:
    name: str
    prepare: Callable  # prepare(problem, threads) -> Prepared, or raises Unsupported
    materialises: bool = False  # has the whole matrix of scores in memory
    slow_start: bool = False  # compiles for tens of seconds; left out of quick runs


def repeat(call):
    """run(times) of a function without arguments: [seconds of each call]."""

    def run(times):
        taken = []
        for _ in range(times):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        return taken

    return run


def module_of(library, blocks=False):
    name = LIBRARIES[library][0]
    return importlib.import_module(name.replace("peers.", "peers.blocks.") if blocks else name)
