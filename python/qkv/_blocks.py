"""Blocks of models: their weights found by name, their forward computed here."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional, Sequence

from ._core import Block as _Block


def _named(**arrays):
    """The arrays that were given, under their names in a state dict: "__" stands for a dot."""
    return {name.replace("__", "."): array for name, array in arrays.items() if array is not None}


class _Attention:
    _kind = ""

    def __init__(self, weights: Any, num_heads: Optional[int] = None, *, prefix: str = "",
                 attn_ratio: float = 0.5, bn_eps: float = 1e-3, norm_eps: float = 1e-6) -> None:
        if hasattr(weights, "state_dict"):  # a module of PyTorch
            if num_heads is None:
                num_heads = getattr(weights, "num_heads", None)
            weights = weights.state_dict()
        if isinstance(weights, (str, os.PathLike)):
            weights = os.fspath(weights)
        elif hasattr(weights, "items"):
            weights = dict(weights.items())
        else:
            raise TypeError(
                f"[qkv.{type(self).__name__}] weights: expected a dict of arrays, the path of a "
                f".safetensors file or a module, found {type(weights).__name__}")
        self._block = _Block(type(self).__name__, self._kind, weights, prefix, num_heads,
                             float(attn_ratio), float(bn_eps), float(norm_eps))

    @property
    def num_heads(self) -> int:
        return self._block.heads

    @property
    def prefix(self) -> str:
        """Where in the checkpoint the weights were found."""
        return self._block.prefix

    def __repr__(self) -> str:
        at = f", prefix={self.prefix!r}" if self.prefix else ""
        return f"qkv.{type(self).__name__}(num_heads={self.num_heads}{at})"

    def _forward(self, x, memory, out, return_weights, threads, options):
        steps = "weights" if return_weights else None
        result = self._block.forward(x, memory, options, out, steps, threads)
        if not return_weights:
            return result
        weights = [array for _, array in result[1]]
        return result[0], weights[0] if len(weights) == 1 else weights

    def _plan(self, x, memory, threads, options) -> str:
        shapes = [None if a is None else [int(n) for n in getattr(a, "shape", a)] for a in (x, memory)]
        return self._block.plan(*shapes, options, threads)

    def _steps(self, x, memory, threads, options) -> Dict[str, Any]:
        return dict(self._block.forward(x, memory, options, None, "all", threads)[1])

    def __call__(self, x: Any, *, out: Any = None, return_weights: bool = False,
                 threads: Optional[int] = None, **options: Any) -> Any:
        """The block's output for x; (output, weights) with return_weights=True.

        `options` are those of `qkv.attention` (mask, causal, key_lengths, …), for the attention
        inside.
        """
        return self._forward(x, None, out, return_weights, threads, options)

    def steps(self, x: Any, *, threads: Optional[int] = None, **options: Any) -> Dict[str, Any]:
        """Everything that the block computes on its way, by name, in its order."""
        return self._steps(x, None, threads, options)

    def plan(self, x: Any, *, threads: Optional[int] = None, **options: Any) -> str:
        """How x, an array or a shape, will be computed: the steps, their kernels, FLOPs and memory, in words."""
        return self._plan(x, None, threads, options)


class TransformerAttention(_Attention):
    """Multi-head attention of the Transformer, self or cross.

    Parameters
    ----------
    weights : dict of arrays (a state dict), path of a .safetensors file, or a module of PyTorch
        With the names of torch.nn.MultiheadAttention (in_proj_weight, out_proj.weight, …) or
        separate matrices: q_proj.weight, …, BERT's self.query.weight, …, w_q, w_k, w_v, w_o. The
        number of key heads follows from their shapes.
    num_heads : int
    prefix : str
        Where in a checkpoint: "encoder.layer.0.attention". Otherwise there has to be one place.

    Call it with x [B, T, width], or with x [B, Tq, width] and memory [B, Tk, width], and options of
    `qkv.attention`; returns [B, T, width], or with return_weights=True also [B, H, Tq, Tk]. The
    polarity of `mask` is that of `qkv.attention`: True may attend.

    Examples
    --------
    >>> import numpy as np, qkv
    >>> w_q, w_k, w_v, w_o = np.random.default_rng(0).normal(size=(4, 64, 64)).astype(np.float32) / 8
    >>> attention = qkv.TransformerAttention.from_arrays(w_q, w_k, w_v, w_o, num_heads=4)
    >>> x = np.ones((2, 10, 64), np.float32)
    >>> out, weights = attention(x, causal=True, return_weights=True)
    >>> out.shape, weights.shape
    ((2, 10, 64), (2, 4, 10, 10))
    >>> list(attention.steps(x))[:5]
    ['input', 'query_projection', 'key_projection', 'value_projection', 'query']
    """

    _kind = "transformer"

    @classmethod
    def from_arrays(cls, w_q: Any, w_k: Any, w_v: Any, w_o: Any, *, b_q: Any = None, b_k: Any = None,
                    b_v: Any = None, b_o: Any = None, num_heads: int) -> "TransformerAttention":
        """Matrices (out, in) and biases [out]."""
        return cls(_named(w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, b_q=b_q, b_k=b_k, b_v=b_v, b_o=b_o),
                   num_heads)

    def __call__(self, x: Any, memory: Any = None, *, out: Any = None, return_weights: bool = False,
                 threads: Optional[int] = None, **options: Any) -> Any:
        """The output for x, which attends to `memory`, or to itself; (output, weights) if asked for.

        `options` are those of `qkv.attention`.
        """
        return self._forward(x, memory, out, return_weights, threads, options)

    def steps(self, x: Any, memory: Any = None, *, threads: Optional[int] = None,
              **options: Any) -> Dict[str, Any]:
        """Everything that the block computes on its way, by name, in its order."""
        return self._steps(x, memory, threads, options)

    def plan(self, x: Any, memory: Any = None, *, threads: Optional[int] = None, **options: Any) -> str:
        """How x and memory, arrays or shapes, will be computed: the steps, their kernels, FLOPs and memory, in words."""
        return self._plan(x, memory, threads, options)


class ViTAttention(_Attention):
    """The attention of a vision transformer, with the names of timm.

    Parameters
    ----------
    weights : dict of arrays (a state dict), path of a .safetensors file, or a module of PyTorch
        qkv.weight, [qkv.bias], proj.weight, [proj.bias], [q_norm.…, k_norm.…]; or those of Hugging
        Face's ViT.
    num_heads : int
        May be left out where a q_norm tells it.
    prefix : str
        Where in a checkpoint: "blocks.0.attn".
    norm_eps : float
        Of q_norm and k_norm.

    Call it with x [B, N, dim]; returns [B, N, dim], or with return_weights=True also [B, H, N, N].

    Examples
    --------
    >>> import numpy as np, qkv
    >>> random = np.random.default_rng(0)
    >>> qkv_weight, proj_weight = random.normal(size=(96, 32)), random.normal(size=(32, 32))
    >>> attention = qkv.ViTAttention.from_arrays(qkv_weight, proj_weight, num_heads=4)
    >>> attention(np.ones((1, 197, 32), np.float32)).shape
    (1, 197, 32)
    """

    _kind = "vit"

    @classmethod
    def from_arrays(cls, qkv_weight: Any, proj_weight: Any, *, qkv_bias: Any = None,
                    proj_bias: Any = None, num_heads: int) -> "ViTAttention":
        """qkv_weight [3·dim, dim], proj_weight [dim, dim], biases [3·dim] and [dim]."""
        return cls(_named(qkv__weight=qkv_weight, qkv__bias=qkv_bias, proj__weight=proj_weight,
                          proj__bias=proj_bias), num_heads)


class GPTAttention(_Attention):
    """The causal self-attention of GPT-2, with its names.

    Parameters
    ----------
    weights : dict of arrays (a state dict), path of a .safetensors file, or a module of PyTorch
        c_attn.weight, [c_attn.bias], c_proj.weight, [c_proj.bias]; (in, out) as GPT-2's, or
        (out, in): c_attn's shape tells.
    num_heads : int
    prefix : str
        Where in a checkpoint: "h.0.attn".

    Call it with x [B, T, d]; returns [B, T, d], or with return_weights=True also [B, H, T, T].

    Examples
    --------
    >>> import numpy as np, qkv
    >>> random = np.random.default_rng(0)
    >>> c_attn, c_proj = random.normal(size=(32, 96)), random.normal(size=(32, 32))
    >>> attention = qkv.GPTAttention.from_arrays(c_attn, c_proj, num_heads=4)
    >>> out, weights = attention(np.ones((1, 5, 32), np.float32), return_weights=True)
    >>> weights[0, 0, 1].tolist()
    [0.5, 0.5, 0.0, 0.0, 0.0]
    """

    _kind = "gpt"

    @classmethod
    def from_arrays(cls, c_attn_weight: Any, c_proj_weight: Any, *, c_attn_bias: Any = None,
                    c_proj_bias: Any = None, num_heads: int) -> "GPTAttention":
        """c_attn_weight [d, 3·d] or [3·d, d], c_proj_weight [d, d], biases [3·d] and [d]."""
        return cls(_named(c_attn__weight=c_attn_weight, c_attn__bias=c_attn_bias,
                          c_proj__weight=c_proj_weight, c_proj__bias=c_proj_bias), num_heads)


class DetectorAttention(_Attention):
    """The attention of a convolutional detector (YOLO11's Attention), with Ultralytics' names.

    Parameters
    ----------
    weights : dict of arrays (a state dict), path of a .safetensors file, or a module of PyTorch
        Convolutions qkv, proj and pe: X.conv.weight with X.bn.…, which is folded, or X.conv.weight
        and X.conv.bias.
    num_heads : int
    prefix : str
        Where in a checkpoint: "model.10.m.0.attn".
    attn_ratio : float
        key_dim / head_dim.
    bn_eps : float
        Of each BatchNorm; a state dict does not hold it.

    Call it with x [B, C, H, W]; returns [B, C, H, W], or with return_weights=True also
    [B, heads, H·W, H·W].

    Examples
    --------
    >>> import numpy as np, qkv
    >>> random = np.random.default_rng(0)
    >>> attention = qkv.DetectorAttention.from_arrays(
    ...     random.normal(size=(64, 32, 1, 1)), random.normal(size=(32, 32, 1, 1)),
    ...     random.normal(size=(32, 1, 3, 3)), num_heads=2)
    >>> attention(np.ones((1, 32, 20, 20), np.float32)).shape
    (1, 32, 20, 20)
    """

    _kind = "detector"

    @classmethod
    def from_arrays(cls, qkv_weight: Any, proj_weight: Any, pe_weight: Any, *, qkv_bias: Any = None,
                    proj_bias: Any = None, pe_bias: Any = None, num_heads: int,
                    attn_ratio: float = 0.5) -> "DetectorAttention":
        """1×1 [out, in, 1, 1] and depthwise 3×3 [C, 1, 3, 3], with their BatchNorms folded in."""
        return cls(_named(qkv__weight=qkv_weight, qkv__bias=qkv_bias, proj__weight=proj_weight,
                          proj__bias=proj_bias, pe__weight=pe_weight, pe__bias=pe_bias),
                   num_heads, attn_ratio=attn_ratio)


def _psa_named(qkv_weight, proj_weight, pe_weight, ffn0_weight, ffn1_weight, qkv_bias=None, proj_bias=None,
               pe_bias=None, ffn0_bias=None, ffn1_bias=None):
    return _named(attn__qkv__weight=qkv_weight, attn__qkv__bias=qkv_bias, attn__proj__weight=proj_weight,
                  attn__proj__bias=proj_bias, attn__pe__weight=pe_weight, attn__pe__bias=pe_bias,
                  ffn__0__weight=ffn0_weight, ffn__0__bias=ffn0_bias, ffn__1__weight=ffn1_weight,
                  ffn__1__bias=ffn1_bias)


class PSABlock(_Attention):
    """YOLO11's PSABlock: x + attn(x), then x + ffn(x), with Ultralytics' names.

    Parameters
    ----------
    weights : dict of arrays (a state dict), path of a .safetensors file, or a module of PyTorch
        attn.qkv, attn.proj, attn.pe, ffn.0 and ffn.1: convolutions as in DetectorAttention.
    num_heads : int
        max(c // 64, 1) unless given.
    prefix, attn_ratio, bn_eps
        As in DetectorAttention; the prefix is like "model.10.m.0".

    Call it with x [B, c, H, W]; returns the same shape, or with return_weights=True also
    [B, heads, H·W, H·W].

    Examples
    --------
    >>> import numpy as np, qkv
    >>> shapes = {"attn.qkv": (64, 32, 1, 1), "attn.proj": (32, 32, 1, 1), "attn.pe": (32, 1, 3, 3),
    ...           "ffn.0": (64, 32, 1, 1), "ffn.1": (32, 64, 1, 1)}
    >>> random = np.random.default_rng(0)
    >>> block = qkv.PSABlock({f"{name}.weight": random.normal(size=s) for name, s in shapes.items()})
    >>> block.num_heads, block(np.ones((1, 32, 4, 4), np.float32)).shape
    (1, (1, 32, 4, 4))
    """

    _kind = "psa"

    @classmethod
    def from_arrays(cls, qkv_weight: Any, proj_weight: Any, pe_weight: Any, ffn0_weight: Any,
                    ffn1_weight: Any, *, qkv_bias: Any = None, proj_bias: Any = None, pe_bias: Any = None,
                    ffn0_bias: Any = None, ffn1_bias: Any = None, num_heads: Optional[int] = None,
                    attn_ratio: float = 0.5) -> "PSABlock":
        """1×1 [out, in, 1, 1], pe depthwise 3×3 [c, 1, 3, 3], with their BatchNorms folded in."""
        return cls(_psa_named(qkv_weight, proj_weight, pe_weight, ffn0_weight, ffn1_weight, qkv_bias,
                              proj_bias, pe_bias, ffn0_bias, ffn1_bias), num_heads, attn_ratio=attn_ratio)


class C2PSA(_Attention):
    """YOLO11's C2PSA (and YOLOv10's PSA), with Ultralytics' names.

    Parameters
    ----------
    weights : dict of arrays (a state dict), path of a .safetensors file, or a module of PyTorch
        cv1, cv2 and the blocks m.0, m.1, …, each as in PSABlock.
    num_heads : int
        max(c // 64, 1) unless given.
    prefix, attn_ratio, bn_eps
        As in DetectorAttention; the prefix is like "model.10".

    Call it with x [B, c1, H, W]; returns the same shape, or with return_weights=True also
    [B, heads, H·W, H·W]; a list of these where there are several blocks.

    Examples
    --------
    >>> import numpy as np, qkv
    >>> shapes = {"cv1": (64, 64, 1, 1), "cv2": (64, 64, 1, 1), "m.0.attn.qkv": (64, 32, 1, 1),
    ...           "m.0.attn.proj": (32, 32, 1, 1), "m.0.attn.pe": (32, 1, 3, 3),
    ...           "m.0.ffn.0": (64, 32, 1, 1), "m.0.ffn.1": (32, 64, 1, 1)}
    >>> random = np.random.default_rng(0)
    >>> block = qkv.C2PSA({f"{name}.conv.weight": random.normal(size=s) for name, s in shapes.items()})
    >>> block(np.ones((1, 64, 4, 4), np.float32)).shape
    (1, 64, 4, 4)
    """

    _kind = "c2psa"

    @classmethod
    def from_arrays(cls, cv1_weight: Any, cv2_weight: Any, blocks: Sequence[Mapping[str, Any]], *,
                    cv1_bias: Any = None, cv2_bias: Any = None, num_heads: Optional[int] = None,
                    attn_ratio: float = 0.5) -> "C2PSA":
        """1×1 [out, in, 1, 1], with their BatchNorms folded in; `blocks` has for each PSABlock a dict
        with the arrays of its `from_arrays`: qkv_weight, …, ffn1_weight, and biases."""
        arrays = _named(cv1__weight=cv1_weight, cv1__bias=cv1_bias, cv2__weight=cv2_weight, cv2__bias=cv2_bias)
        for i, block in enumerate(blocks):
            arrays.update({f"m.{i}.{name}": array for name, array in _psa_named(**block).items()})
        return cls(arrays, num_heads, attn_ratio=attn_ratio)
