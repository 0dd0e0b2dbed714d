"""qkv's blocks, as a user makes and calls them."""

import numpy as np

import qkv

from .. import Prepared, Unsupported, Variant, repeat

CLASSES = {"transformer": "TransformerAttention", "vit": "ViTAttention", "gpt": "GPTAttention",
           "detector": "DetectorAttention", "c2psa": "C2PSA", "vit_layer": "ViTLayer", "vit_model": "ViT"}


def versions():
    return {"qkv": qkv.__version__}


def prepare(problem, threads):
    block_class = getattr(qkv, CLASSES[problem.kind], None)
    if block_class is None:
        raise Unsupported(f"qkv has no {CLASSES[problem.kind]} yet")
    block = block_class(problem.weights, problem.heads)
    x = problem.input
    out = block(x, threads=threads)
    out = np.array(out)
    return Prepared(repeat(lambda: block(x, out=out, threads=threads)), lambda: out)


def variants(problem):
    return [Variant("fused", prepare)]
