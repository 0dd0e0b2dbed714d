"""Exact attention on a CPU, that shows its work.

>>> import numpy as np, qkv
>>> x = np.array([[0.4, 0.1, 0.8], [0.5, 0.8, 0.6], [0.5, 0.8, 0.6]], dtype=np.float32)
>>> tokens = x[None, None]  # [B, H, T, D]: one batch, one head, three tokens of width 3
>>> out, weights = qkv.attention(tokens, tokens, tokens, scale=1, return_weights=True)
>>> weights[0, 0, 0].round(5).tolist() == np.float32([0.34454, 0.32773, 0.32773]).tolist()
True
"""

from ._attention import attention
from ._blocks import C2PSA, DetectorAttention, GPTAttention, PSABlock, TransformerAttention, ViTAttention
from ._core import __version__
from ._explain import Explanation, Step, explain
from ._kv_cache import KVCache
from ._gpt import GPT, Token, Tokenizer
from ._layers import EncoderLayer, ViT
from ._onnx import OnnxAttentionOutputs, onnx_attention
from ._plan import Plan, info, plan
from ._threads import num_threads, set_num_threads

__all__ = [
    "C2PSA",
    "DetectorAttention",
    "EncoderLayer",
    "Explanation",
    "GPT",
    "GPTAttention",
    "KVCache",
    "OnnxAttentionOutputs",
    "PSABlock",
    "Plan",
    "Step",
    "Token",
    "Tokenizer",
    "TransformerAttention",
    "ViT",
    "ViTAttention",
    "__version__",
    "attention",
    "explain",
    "info",
    "num_threads",
    "onnx_attention",
    "plan",
    "set_num_threads",
]


# Not imported before they are asked for: qkv itself needs no framework.
def __getattr__(name):
    if name in ("torch", "transformers"):
        import importlib

        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
