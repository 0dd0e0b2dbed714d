"""Attention in f64 NumPy, written from the rules: what the module is checked against.

Nothing clever: the whole [B, Hq, Tq, Tk] of scores, a boolean array of what is visible, a softmax.
"""

import numpy as np


def _positions(offset, causal, B, Tq, Tk):
    """The position of each query, [B, 1, Tq, 1]."""
    if causal == "bottom_right":
        offset = Tk - Tq
    first = np.broadcast_to(np.asarray(0 if offset is None else offset), (B,))
    return first[:, None, None, None] + np.arange(Tq)[:, None]


def _per_batch(numbers):
    return np.asarray(numbers)[:, None, None, None]


def _visible(shape, p, mask, bias, causal, window, prefix, key_lengths):
    j = np.arange(shape[-1])
    seen = np.ones(shape, bool)
    if causal:
        seen &= j <= p
    if window is not None:
        left, right = window
        if left >= 0:
            seen &= j >= p - left
        if right >= 0:
            seen &= j <= p + right
    if prefix is not None:
        seen |= j < _per_batch(prefix)
    if key_lengths is not None:
        seen &= j < _per_batch(key_lengths)
    if mask is not None:
        seen &= mask
    if bias is not None:
        seen &= ~np.isneginf(bias)
    return seen


def attention(q, k, v, *, mask=None, bias=None, causal=None, offset=None, window=None, prefix=None,
              scale=None, softcap=None, alibi=None, key_lengths=None, sinks=None):
    """(out, weights, lse), all f64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    B, Hq, Tq, D = q.shape
    group = Hq // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    s = np.einsum("bhid,bhjd->bhij", q, k) * (D**-0.5 if scale is None else scale)
    if softcap is not None:
        s = softcap * np.tanh(s / softcap)
    p = _positions(offset, causal, B, Tq, k.shape[2])
    if bias is not None:
        s = s + np.asarray(bias, np.float64)
    if alibi is not None:
        s = s - np.asarray(alibi)[:, None, None] * np.abs(p - np.arange(k.shape[2]))
    seen = _visible(s.shape, p, mask, bias, causal, window, prefix, key_lengths)
    s = np.where(seen, s, -np.inf)
    sink = np.full((Hq, 1, 1), -np.inf) if sinks is None else np.asarray(sinks, float)[:, None, None]
    top = np.maximum(s.max(-1, keepdims=True, initial=-np.inf), sink)
    top = np.where(np.isneginf(top), 0, top)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True) + np.exp(sink - top)
    weights = e / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return np.einsum("bhij,bhjd->bhid", weights, v), weights, lse


def packed(q, k, v, query_starts, key_starts, per_sequence=None, **options):
    """(out, lse) of sequences end to end: each alone, then side by side."""
    outs, lses = [], []
    for n in range(len(query_starts) - 1):
        own = {name: [numbers[n]] for name, numbers in (per_sequence or {}).items()}
        i = slice(query_starts[n], query_starts[n + 1])
        j = slice(key_starts[n], key_starts[n + 1])
        out, _, lse = attention(q[:, :, i], k[:, :, j], v[:, :, j], **options, **own)
        outs.append(out)
        lses.append(lse)
    return np.concatenate(outs, axis=2), np.concatenate(lses, axis=2)
