"""Layers and models made of the blocks: an encoder layer, a whole vision transformer."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple

from ._core import Block as _Block, EncoderLayer as _EncoderLayer, VisionModel as _VisionModel

# Where each part is called what: the attention's kind and place, the feed-forward's two maps, the layer's scales, and
# what the library takes for granted (norm_first, activation, eps).
_NAMES = {
    "attn.qkv.weight": ("vit", "attn", "mlp.fc1", "mlp.fc2", "ls1.gamma", "ls2.gamma", True, "gelu", 1e-6),
    "self_attn.in_proj_weight": ("transformer", "self_attn", "linear1", "linear2", "", "", False, "relu", 1e-5),
}


class EncoderLayer:
    """The encoder layer of the Transformer or of a vision transformer.

    ::

        norm first   y = x + attention(norm1(x))      out = y + mlp(norm2(y))
        norm last    y = norm1(x + attention(x))      out = norm2(y + mlp(y))

    Weights are copied once, into the order that the products read them in.

    Parameters
    ----------
    weights : dict of arrays (a state dict) or a module of PyTorch
        With the names of timm's Block (norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2, [ls1.gamma, ls2.gamma])
        or of torch.nn.TransformerEncoderLayer (self_attn.in_proj_weight, …, linear1, linear2, norm1, norm2).
    num_heads : int
    prefix : str
        Where in a state dict: "blocks.0.".
    norm_first : bool
        True with timm's names and False with PyTorch's, unless given; a module says it itself.
    activation : "relu", "gelu", "gelu_tanh", "quick_gelu" or "silu"
        "gelu" with timm's names and "relu" with PyTorch's, unless given.
    eps : float
        Of the norms: 1e-6 with timm's names and 1e-5 with PyTorch's, unless given.
    storage : "f32", "f16", "bf16" or "int8"
        How the weights of products are kept: as they are, unless given. "int8" has a scale for each output, and
        rounds what goes in, too, token by token: more than twice as fast where the CPU has VNNI, 1 to 2.5 % off.

    Call it with x [B, T, width] and options of `qkv.attention`; returns the same shape.

    Examples
    --------
    >>> import numpy as np, qkv
    >>> shapes = {"attn.qkv": (96, 32), "attn.proj": (32, 32), "mlp.fc1": (128, 32), "mlp.fc2": (32, 128)}
    >>> random = np.random.default_rng(0)
    >>> weights = {f"{name}.weight": random.normal(size=s) / 8 for name, s in shapes.items()}
    >>> weights.update({f"norm{n}.weight": np.ones(32) for n in (1, 2)})
    >>> layer = qkv.EncoderLayer(weights, num_heads=4)
    >>> layer(np.ones((2, 10, 32), np.float32)).shape
    (2, 10, 32)
    """

    def __init__(self, weights: Any, num_heads: Optional[int] = None, *, prefix: str = "",
                 norm_first: Optional[bool] = None, activation: Optional[str] = None,
                 eps: Optional[float] = None, storage: Optional[str] = None) -> None:
        if hasattr(weights, "state_dict"):
            num_heads, norm_first, eps = _of_module(weights, num_heads, norm_first, eps)
            weights = weights.state_dict()
        if not hasattr(weights, "items"):
            raise TypeError("[qkv.EncoderLayer] weights: expected a dict of arrays or a module, "
                            f"found {type(weights).__name__}")
        found = {name[len(prefix):]: array for name, array in weights.items() if name.startswith(prefix)}
        for name, names in _NAMES.items():
            if name in found:
                break
        else:
            raise ValueError(f"[qkv.EncoderLayer] weights: expected {' or '.join(prefix + n for n in _NAMES)}, "
                             f"found {', '.join(list(found)[:8]) or 'none with that prefix'}")
        kind, place, first, second, scale1, scale2, is_first, usual, usual_eps = names
        block = _Block("EncoderLayer", kind, found, place, num_heads, 0.5, 1e-3, 1e-6)
        parts = {f"{new}.{part}": found[f"{old}.{part}"] for part in ("weight", "bias")
                 for new, old in (("norm1", "norm1"), ("norm2", "norm2"), ("linear1", first), ("linear2", second))
                 if f"{old}.{part}" in found}
        parts.update({new: found[old] for new, old in (("scale1", scale1), ("scale2", scale2)) if old in found})
        self.num_heads: int = block.heads
        self._layer = _EncoderLayer(block, parts, activation or usual,
                                    is_first if norm_first is None else bool(norm_first),
                                    float(usual_eps if eps is None else eps), storage)

    def __repr__(self) -> str:
        return f"qkv.EncoderLayer(num_heads={self.num_heads})"

    def __call__(self, x: Any, *, out: Any = None, threads: Optional[int] = None, **options: Any) -> Any:
        """The layer's output for x. `options` are those of `qkv.attention`, for the attention inside."""
        return self._layer.forward(x, options, out, threads)


def _of_module(module, num_heads, norm_first, eps):
    """What a module of PyTorch or timm says itself, where it was not given."""
    attention = getattr(module, "self_attn", getattr(module, "attn", None))
    if num_heads is None:
        num_heads = getattr(attention, "num_heads", None)
    if norm_first is None:
        norm_first = getattr(module, "norm_first", None)
    if eps is None:
        eps = getattr(getattr(module, "norm1", None), "eps", None)
    return num_heads, norm_first, eps


class ViT:
    """A whole vision transformer: pixels in, scores of the classes out.

    Parameters
    ----------
    folder : path
        With config.json and model.safetensors, of Hugging Face (`save_pretrained` of a ViTForImageClassification or
        ViTModel) or of timm.
    num_heads : int
        Needed for timm's where its heads are not 64 wide and config.json does not say it.
    storage : "f32", "f16", "bf16" or "int8"
        As in `qkv.EncoderLayer`.

    Call it with pixels [B, C, H, W], normalised as the model wants them; returns [B, classes], or for a model
    without a head [B, width].

    Examples
    --------
    >>> import numpy as np, qkv
    >>> model = qkv.ViT("vit-base-patch16-224")
    >>> pixels = np.zeros((1, *model.image_shape), np.float32)
    >>> model(pixels).shape
    (1, 1000)
    """

    def __init__(self, folder: Any, num_heads: Optional[int] = None, *, storage: Optional[str] = None) -> None:
        self._model = _VisionModel(os.fspath(folder), num_heads, storage)

    @property
    def image_shape(self) -> Tuple[int, ...]:
        """Of the pixels: (channels, height, width)."""
        return tuple(self._model.image)

    @property
    def labels(self) -> List[str]:
        """The names of the classes; empty where the model has none."""
        return self._model.labels

    def __repr__(self) -> str:
        return f"qkv.ViT({self._model.origin}, {self.image_shape} → {self._model.classes})"

    def __call__(self, pixels: Any, *, out: Any = None, threads: Optional[int] = None) -> Any:
        """The scores [B, classes] of pixels [B, C, H, W]."""
        return self._model.forward(pixels, out, threads)
