"""Folders with models that are small, and made here."""

import json
import struct

import numpy as np


def save(path, tensors):
    header, blob = {}, b""
    for name, array in tensors.items():
        data = np.ascontiguousarray(array, dtype=np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def byte_tokenizer():
    """GPT-2's characters of the 256 bytes, an id each, and <|endoftext|>."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {chr(b if b in plain else next(others)): b for b in range(256)} | {"<|endoftext|>": 256}


def make_parrot(folder, says):
    """A GPT that says the bytes of a text, one a position, whatever it is told."""
    ids = list(says) + [256]
    n = len(ids)
    head = np.zeros((257, n))
    head[ids, range(n)] = 9
    zeros = {"wte": (257, n), "h.0.ln_1": (n,), "h.0.ln_2": (n,), "h.0.attn.c_attn": (3 * n, n),
             "h.0.attn.c_proj": (n, n), "h.0.mlp.c_fc": (4 * n, n), "h.0.mlp.c_proj": (n, 4 * n)}
    save(folder / "model.safetensors", {
        **{f"{name}.weight": np.zeros(shape) for name, shape in zeros.items()},
        "wpe.weight": np.eye(n), "ln_f.weight": np.ones(n), "lm_head.weight": head})
    (folder / "config.json").write_text(json.dumps({
        "n_layer": 1, "n_head": 1, "n_embd": n, "vocab_size": 257, "block_size": n, "bias": False,
        "eos_token_id": 256}))
    (folder / "vocab.json").write_text(json.dumps(byte_tokenizer()))
    (folder / "merges.txt").write_text("#version: 0.2\n")


def make_vit(folder, classes, width=8, patch=112, side=224):
    """A vision transformer of one layer, with Hugging Face's names and random weights."""
    random = np.random.default_rng(0)
    shapes = {"classifier": (classes, width), "vit.embeddings.patch_embeddings.projection": (width, 3, patch, patch)}
    layer = "vit.encoder.layer.0."
    for name in ("query", "key", "value"):
        shapes[f"{layer}attention.attention.{name}"] = (width, width)
    shapes[f"{layer}attention.output.dense"] = (width, width)
    shapes[f"{layer}intermediate.dense"] = (2 * width, width)
    shapes[f"{layer}output.dense"] = (width, 2 * width)
    tensors = {f"{name}.weight": random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
               for name, shape in shapes.items()}
    tensors.update({f"{name}.bias": np.zeros(shape[0]) for name, shape in shapes.items()})
    for norm in (f"{layer}layernorm_before", f"{layer}layernorm_after", "vit.layernorm"):
        tensors.update({f"{norm}.weight": np.ones(width), f"{norm}.bias": np.zeros(width)})
    tensors["vit.embeddings.cls_token"] = np.zeros((1, 1, width))
    tensors["vit.embeddings.position_embeddings"] = np.zeros((1, 1 + (side // patch) ** 2, width))
    save(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "vit", "hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 2 * width, "image_size": side, "patch_size": patch, "num_channels": 3,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu"}))
