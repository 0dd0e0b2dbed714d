from __future__ import annotations

from typing import Any, NamedTuple, Optional

from ._core import onnx_attention as _onnx_attention


class OnnxAttentionOutputs(NamedTuple):
    """What qkv.onnx_attention returns: the operator's four outputs."""

    Y: Any
    present_key: Any
    present_value: Any
    qk_matmul_output: Any


def onnx_attention(
    Q: Any,
    K: Any,
    V: Any,
    attn_mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    nonpad_kv_seqlen: Any = None,
    *,
    is_causal: Any = False,
    scale: Optional[float] = None,
    softcap: float = 0.0,
    qk_matmul_output_mode: int = 0,
    softmax_precision: Optional[int] = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    q_num_heads: Optional[int] = None,
    kv_num_heads: Optional[int] = None,
    threads: Optional[int] = None,
) -> OnnxAttentionOutputs:
    """The ONNX operator Attention, opsets 23 to 25, with its names; inputs in its order.

    Parameters
    ----------
    Q, K, V : arrays [B, Hq, Tq, D], [B, Hkv, Tn, D] and [B, Hkv, Tn, Dv]
        Or [B, Tq, Hq·D], [B, Tn, Hkv·D] and [B, Tn, Hkv·Dv], with `q_num_heads` and `kv_num_heads`.
        One dtype: f32, f64, f16 or bf16.
    attn_mask : array that broadcasts to [B, Hq, Tq, Tk], Tk = P + Tn
        bool: True may attend; of Q's dtype or f32: added. A last axis shorter than Tk is padded as
        masked.
    past_key, past_value : arrays [B, Hkv, P, D] and [B, Hkv, P, Dv]
    nonpad_kv_seqlen : integers [B]
        Keys at or after it do not exist. Not with a past.
    is_causal : bool, or 0 or 1
        Query i sees keys j ≤ i + offset; offset is P, or nonpad_kv_seqlen - Tq, or 0.
    scale : float
        1/√D unless given.
    softcap : float
        0 is none.
    qk_matmul_output_mode : int
        What qk_matmul_output holds: 0 scaled scores, 1 after softcap, 2 after the mask, 3 softmax.
    softmax_precision : int
        TensorProto's number of a type; 11 (double) computes everything in f64.
    left_window_size, right_window_size : int
        -1 is unbounded.
    threads : int
        How many threads may work.

    Returns
    -------
    (Y, present_key, present_value, qk_matmul_output)
        Y as Q, with Dv; present [B, Hkv, Tk, D] and [B, Hkv, Tk, Dv], None with nonpad_kv_seqlen;
        qk_matmul_output [B, Hq, Tq, Tk].

    Examples
    --------
    >>> import numpy as np, qkv
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 2, 5, 24)).astype(np.float32)
    >>> outputs = qkv.onnx_attention(q, k, v, q_num_heads=3, kv_num_heads=3, is_causal=True)
    >>> outputs.Y.shape, outputs.present_key.shape, outputs.qk_matmul_output.shape
    ((2, 5, 24), (2, 3, 5, 8), (2, 3, 5, 5))
    """
    return OnnxAttentionOutputs(*_onnx_attention(
        Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, is_causal, scale, softcap,
        qk_matmul_output_mode, softmax_precision, left_window_size, right_window_size, q_num_heads,
        kv_num_heads, threads))
