"""A row of blocks.json: a whole block, x in, y out. Its weights, its input, its FLOPs, and what it computes, written
once for every library in terms of a builder (NumPy's below is the truth, in f64; peers/blocks has the others)."""

import json
import math
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from problem import aligned

BLOCKS = Path(__file__).with_name("blocks.json")
EPS = 1e-6  # of a ViT's norms
CLASSES = 1000


@dataclass
class BlockProblem:
    """B batch, T tokens (of a picture: pixels), dim width (of a picture: channels in the attention)."""

    name: str
    kind: str
    T: int
    dim: int
    heads: int
    B: int = 1
    layers: int = 1
    goal: object = None
    enough: float = 80.0  # % of peak that meets any ratio
    storage: str = None  # of our weights, where they are not f32: a row without peers
    beside: str = None  # as in Problem
    slower: float = None
    faster: float = None

    def __post_init__(self):
        if not isinstance(self.goal, (list, type(None))):
            self.goal = [0, self.goal]

    def facts(self):
        """What makes it: BlockProblem(**facts)."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def side(self):
        return math.isqrt(self.T)

    @property
    def key_dim(self):
        return self.dim // self.heads // 2  # the detector's

    def shapes(self):
        """Of every weight, by its name in a state dict."""
        return SHAPES[self.kind](self)

    @cached_property
    def weights(self):
        """f32; matrices keep the size of what goes through them. Same in every process."""
        rng = np.random.default_rng(self.dim + self.heads)
        found = {}
        for name, shape in self.shapes().items():
            fan_in = shape[0] if name.startswith("c_") else math.prod(shape[1:])
            values = rng.standard_normal(shape, dtype=np.float32)
            if name.endswith("weight") and len(shape) > 1:
                found[name] = values / np.float32(math.sqrt(fan_in))
            else:
                found[name] = values * np.float32(0.1) + np.float32("norm" in name and name.endswith("weight"))
        return found

    @cached_property
    def input(self):
        rng = np.random.default_rng(self.T + self.B)
        channels = 2 * self.dim if self.kind == "c2psa" else self.dim
        shape = {"detector": (self.B, channels, self.side, self.side), "c2psa": (self.B, channels, self.side, self.side),
                 "vit_model": (self.B, 3, 224, 224)}.get(self.kind, (self.B, self.T, self.dim))
        return aligned(shape, rng.standard_normal(shape, dtype=np.float32))

    def build(self, builder, x):
        """What the block computes, of a builder's x."""
        return BUILD[self.kind](self, builder, x, Weights(self.weights))

    def flops(self):
        """All products of the block, 2 for a multiplication and an addition; the visible part of the attention."""
        counter = Counter()
        self.build(counter, np.empty(self.input.shape, np.float32))
        return counter.flops

    def bytes(self):
        return 4 * (2 * self.input.size + sum(w.size for w in self.weights.values()))

    def score_bytes(self):
        return 4 * self.B * self.heads * self.T * self.T

    def sample_rows(self):
        return [(0,)]  # all of the first picture or sentence

    def expected(self, rows):
        x = self.input[:1].astype(np.float64)
        return self.build(NumpyBuilder(), x)


class Weights(dict):
    """Under a prefix: weights["attn."]["qkv.weight"]."""

    def at(self, prefix):
        return Weights({name[len(prefix):]: w for name, w in self.items() if name.startswith(prefix)})


def linear_shapes(name, out, width, weight="weight"):
    return {f"{name}.{weight}": (out, width), f"{name}.bias": (out,)}


def vit_layer_shapes(p):
    norm = {f"{name}.{part}": (p.dim,) for name in ("norm1", "norm2") for part in ("weight", "bias")}
    return {**norm, **linear_shapes("attn.qkv", 3 * p.dim, p.dim), **linear_shapes("attn.proj", p.dim, p.dim),
            **linear_shapes("mlp.fc1", 4 * p.dim, p.dim), **linear_shapes("mlp.fc2", p.dim, 4 * p.dim)}


def vit_model_shapes(p):
    layers = {f"blocks.{n}.{name}": s for n in range(p.layers) for name, s in vit_layer_shapes(p).items()}
    return {"cls_token": (1, 1, p.dim), "pos_embed": (1, p.T, p.dim), "patch_embed.proj.weight": (p.dim, 3, 16, 16),
            "patch_embed.proj.bias": (p.dim,), **layers, "norm.weight": (p.dim,), "norm.bias": (p.dim,),
            **linear_shapes("head", CLASSES, p.dim)}


def conv_shapes(name, out, channels, side=1):
    return {f"{name}.conv.weight": (out, channels, side, side), f"{name}.conv.bias": (out,)}


def detector_shapes(p, at=""):
    return {**conv_shapes(at + "qkv", p.dim + 2 * p.heads * p.key_dim, p.dim), **conv_shapes(at + "proj", p.dim, p.dim),
            **conv_shapes(at + "pe", p.dim, 1, 3)}


def c2psa_shapes(p):
    return {**conv_shapes("cv1", 2 * p.dim, 2 * p.dim), **conv_shapes("cv2", 2 * p.dim, 2 * p.dim),
            **detector_shapes(p, "m.0.attn."), **conv_shapes("m.0.ffn.0", 2 * p.dim, p.dim),
            **conv_shapes("m.0.ffn.1", p.dim, 2 * p.dim)}


SHAPES = {
    "transformer": lambda p: {"in_proj_weight": (3 * p.dim, p.dim), "in_proj_bias": (3 * p.dim,),
                              **linear_shapes("out_proj", p.dim, p.dim)},
    "vit": lambda p: {**linear_shapes("qkv", 3 * p.dim, p.dim), **linear_shapes("proj", p.dim, p.dim)},
    "vit_layer": vit_layer_shapes,
    "vit_model": vit_model_shapes,
    "gpt": lambda p: {"c_attn.weight": (p.dim, 3 * p.dim), "c_attn.bias": (3 * p.dim,),
                      "c_proj.weight": (p.dim, p.dim), "c_proj.bias": (p.dim,)},
    "detector": detector_shapes,
    "c2psa": c2psa_shapes,
}


def transformer(p, b, x, w):
    y = b.self_attention(x, w["in_proj_weight"], w["in_proj_bias"], p.heads)
    return b.linear(y, w["out_proj.weight"], w["out_proj.bias"])


def vit(p, b, x, w):
    y = b.self_attention(x, w["qkv.weight"], w["qkv.bias"], p.heads)
    return b.linear(y, w["proj.weight"], w["proj.bias"])


def vit_layer(p, b, x, w):
    y = b.layer_norm(x, w["norm1.weight"], w["norm1.bias"], EPS)
    x = b.add(x, vit(p, b, y, w.at("attn.")))
    y = b.layer_norm(x, w["norm2.weight"], w["norm2.bias"], EPS)
    y = b.gelu(b.linear(y, w["mlp.fc1.weight"], w["mlp.fc1.bias"]))
    return b.add(x, b.linear(y, w["mlp.fc2.weight"], w["mlp.fc2.bias"]))


def vit_model(p, b, x, w):
    B = b.shape(x)[0]
    x = b.patches(x, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"])  # [B, T - 1, dim]
    cls = b.constant(np.broadcast_to(w["cls_token"], (B, 1, p.dim)))
    x = b.add(b.concat([cls, x], 1), b.constant(w["pos_embed"]))
    for n in range(p.layers):
        x = vit_layer(p, b, x, w.at(f"blocks.{n}."))
    x = b.layer_norm(x, w["norm.weight"], w["norm.bias"], EPS)
    return b.linear(b.first_token(x), w["head.weight"], w["head.bias"])


def gpt(p, b, x, w):
    y = b.self_attention(x, w["c_attn.weight"].T, w["c_attn.bias"], p.heads, causal=True)
    return b.linear(y, w["c_proj.weight"].T, w["c_proj.bias"])


def conv(b, x, w, name, groups=1):
    return b.conv(x, w[name + ".conv.weight"], w[name + ".conv.bias"], groups)


def detector(p, b, x, w):
    B, C, H, W = b.shape(x)
    width = p.dim // p.heads
    qkv = b.reshape(conv(b, x, w, "qkv"), (B, p.heads, 2 * p.key_dim + width, H * W))
    q, k, v = b.split(qkv, (p.key_dim, p.key_dim, width), 2)
    y = b.reshape(b.channel_attention(q, k, v), (B, C, H, W))
    y = b.add(y, conv(b, b.reshape(v, (B, C, H, W)), w, "pe", p.dim))
    return conv(b, y, w, "proj")


def c2psa(p, b, x, w):
    kept, y = b.split(b.silu(conv(b, x, w, "cv1")), (p.dim, p.dim), 1)
    y = b.add(y, detector(p, b, y, w.at("m.0.attn.")))
    y = b.add(y, conv(b, b.silu(conv(b, y, w, "m.0.ffn.0")), w, "m.0.ffn.1"))
    return b.silu(conv(b, b.concat([kept, y], 1), w, "cv2"))


BUILD = {"transformer": transformer, "vit": vit, "vit_layer": vit_layer, "vit_model": vit_model, "gpt": gpt,
         "detector": detector, "c2psa": c2psa}


class Builder:
    """What all builders share. Weights are NumPy's arrays, matrices (out, in); x is whatever the library has."""

    def self_attention(self, x, weight, bias, heads, causal=False):
        q, k, v = self.split(self.linear(x, weight, bias), (weight.shape[0] // 3,) * 3, 2)
        return self.attention(q, k, v, heads, causal)


class NumpyBuilder(Builder):
    """Plain formulas, in the dtype of x."""

    def shape(self, x):
        return x.shape

    def constant(self, array):
        return array

    def linear(self, x, weight, bias):
        return x @ weight.T.astype(x.dtype) + bias

    def attention(self, q, k, v, heads, causal):
        """q, k, v [B, T, H·D] → [B, T, H·D]."""
        B, T, width = q.shape
        q, k, v = (a.reshape(B, T, heads, -1).swapaxes(1, 2) for a in (q, k, v))
        s = q @ k.swapaxes(2, 3) / math.sqrt(width // heads)
        if causal:
            s = np.where(np.tri(T, dtype=bool), s, -np.inf)
        return (softmax(s) @ v).swapaxes(1, 2).reshape(B, T, width)

    def channel_attention(self, q, k, v):
        """q, k [B, H, D, N], v [B, H, Dv, N] → [B, H, Dv, N]."""
        return v @ softmax(q.swapaxes(2, 3) @ k / math.sqrt(q.shape[2])).swapaxes(2, 3)

    def layer_norm(self, x, scale, shift, eps):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + eps) * scale + shift

    def gelu(self, x):
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def silu(self, x):
        return x / (1 + np.exp(-x))

    def add(self, x, y):
        return x + y

    def conv(self, x, weight, bias, groups=1):
        """1×1, or depthwise 3×3 with padding 1."""
        if groups == 1:
            B, C, H, W = x.shape
            y = weight[:, :, 0, 0].astype(x.dtype) @ x.reshape(B, C, H * W)
            return y.reshape(B, -1, H, W) + bias[:, None, None]
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        H, W = x.shape[2:]
        taps = [padded[:, :, i:i + H, j:j + W] * weight[:, 0, i, j, None, None] for i in range(3) for j in range(3)]
        return sum(taps) + bias[:, None, None]

    def patches(self, x, weight, bias):
        B, C, H, W = x.shape
        side = weight.shape[2]
        x = x.reshape(B, C, H // side, side, W // side, side).transpose(0, 2, 4, 1, 3, 5)
        return self.linear(x.reshape(B, (H // side) * (W // side), -1), weight.reshape(weight.shape[0], -1), bias)

    def first_token(self, x):
        return x[:, 0]

    def reshape(self, x, shape):
        return x.reshape(shape)

    def split(self, x, sizes, axis):
        return np.split(x, np.cumsum(sizes)[:-1], axis)

    def concat(self, parts, axis):
        return np.concatenate(parts, axis)


def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


class Counter(NumpyBuilder):
    """Counts the products; arrays are only shapes."""

    def __init__(self):
        self.flops = 0

    def linear(self, x, weight, bias):
        self.flops += 2 * math.prod(x.shape) * weight.shape[0]
        return np.empty((*x.shape[:-1], weight.shape[0]), np.float32)

    def attention(self, q, k, v, heads, causal):
        B, T, width = q.shape
        pairs = T * (T + 1) // 2 if causal else T * T
        self.flops += 2 * B * pairs * (width + v.shape[2])
        return v

    def channel_attention(self, q, k, v):
        B, H, D, N = q.shape
        self.flops += 2 * B * H * N * N * (D + v.shape[2])
        return v

    def conv(self, x, weight, bias, groups=1):
        B, C, H, W = x.shape
        self.flops += 2 * B * H * W * weight.size
        return np.empty((B, weight.shape[0], H, W), np.float32)

    def layer_norm(self, x, *_):
        return x

    def add(self, x, y):
        return x

    def gelu(self, x):
        return x

    silu = gelu


def load_blocks(path=BLOCKS):
    return [BlockProblem(**row) for row in json.loads(Path(path).read_text())["blocks"]]
