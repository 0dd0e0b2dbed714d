"""qkv's blocks, as a user makes and calls them."""

import atexit
import json
import shutil
import tempfile
from pathlib import Path

import qkv
from problem import aligned

from .. import Prepared, Unsupported, Variant, repeat

CLASSES = {"transformer": "TransformerAttention", "vit": "ViTAttention", "gpt": "GPTAttention",
           "detector": "DetectorAttention", "c2psa": "C2PSA", "vit_layer": "EncoderLayer", "vit_model": "ViT"}


def versions():
    return {"qkv": qkv.__version__}


def saved(problem):
    """The weights as a folder of timm's, which is how a whole model is loaded."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    (folder / "config.json").write_text('{"architecture": "vit"}')
    header, place = {}, 0
    for name, array in problem.weights.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [place, place + array.nbytes]}
        place += array.nbytes
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in problem.weights.values():
            file.write(array.tobytes())
    return folder


def prepare(problem, threads):
    block_class = getattr(qkv, CLASSES[problem.kind], None)
    if block_class is None:
        raise Unsupported(f"qkv has no {CLASSES[problem.kind]} yet")
    stored = {"storage": problem.storage} if problem.storage else {}
    block = block_class(problem.weights if problem.kind != "vit_model" else saved(problem), problem.heads, **stored)
    x = problem.input
    out = aligned(block(x, threads=threads).shape)
    return Prepared(repeat(lambda: block(x, out=out, threads=threads)), lambda: out)


def variants(problem):
    return [Variant("fused", prepare)]
