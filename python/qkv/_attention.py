from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

from ._core import attention as _attention

# Arrays are of any library: there is no type for "has DLPack or a buffer" that checkers agree on.
Array = Any
Numbers = Union[Sequence[float], Array]
Integers = Union[int, Sequence[int], Array]


def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Optional[Array] = None,
    bias: Optional[Array] = None,
    causal: Union[None, bool, str] = None,
    offset: Optional[Integers] = None,
    window: Optional[Tuple[int, int]] = None,
    prefix: Optional[Integers] = None,
    scale: Optional[float] = None,
    softcap: Optional[float] = None,
    alibi: Optional[Numbers] = None,
    key_lengths: Optional[Integers] = None,
    query_starts: Optional[Integers] = None,
    key_starts: Optional[Integers] = None,
    sinks: Optional[Numbers] = None,
    layout: str = "bhtd",
    out: Optional[Array] = None,
    return_weights: Union[bool, Sequence[Tuple[int, int, int]], Array] = False,
    return_lse: bool = False,
    threads: Optional[int] = None,
) -> Any:
    """Scaled dot-product attention, exact, in one pass over the keys.

    ::

        S = scale · Q·Kᵀ                        [B, Hq, Tq, Tk]
        S = softcap · tanh(S / softcap)         if a softcap is set
        S = S + bias − alibi·|i + offset − j|,  hidden entries removed
        P = softmax(S)                          a sink adds exp(sink) to the denominator only
        O = P·V                                 [B, Hq, Tq, Dv]

    Arrays are NumPy's, PyTorch's or JAX's on the CPU, or anything else with DLPack or a buffer;
    strided and read-only ones are taken as they are, and none is copied. Results are of the
    query's library (of NumPy for one that is not known). The GIL is released during the work.

    Parameters
    ----------
    query, key, value : arrays
        [B, Hq, Tq, D], [B, Hkv, Tk, D] and [B, Hkv, Tk, Dv] of one dtype: f32, f64, f16 or bf16.
        Hq is a multiple of Hkv; query head h reads key head h // (Hq // Hkv).
    mask : bool array that broadcasts to [B, Hq, Tq, Tk]
        True may attend.
    bias : array that broadcasts to [B, Hq, Tq, Tk], of the query's dtype or f32
        Added after softcap; -inf hides a key.
    causal : None, True, "top_left" or "bottom_right"
        Query i sees keys j ≤ i + offset. "top_left" is offset 0 and "bottom_right" Tk - Tq; True
        needs Tq = Tk or an `offset`.
    offset : int, or integers [B]
        The position of query 0; with a cache, the number of past tokens.
    window : (left, right)
        Query i sees keys i + offset - left ≤ j ≤ i + offset + right; -1 is unbounded.
    prefix : integers [B]
        Keys j < prefix are visible to every query, whatever causal and window say.
    scale : float
        1/√D unless given.
    softcap : float > 0
    alibi : numbers [Hq]
        Slopes.
    key_lengths : integers [B]
        Keys at or after it do not exist.
    query_starts, key_starts : integers [n + 1]
        A packed batch: B = 1 and n sequences end to end, from 0 to Tq and to Tk. What is "[B]"
        above is then "[n]".
    sinks : numbers [Hq]
    layout : "bhtd", "bthd" or "bhdt"
        The order of the axes of query, key, value and out. "bhdt" is channel-first.
    out : writable array
        To write to, and returned. It shares no byte with an input.
    return_weights : bool, or (b, h, i) triples, or an integer array [n, 3]
        True: P, [B, Hq, Tq, Tk]. Triples: its rows of these batches, heads and queries, [n, Tk].
    return_lse : bool
        The logarithm of Σ exp(S), sink included, [B, Hq, Tq].
    threads : int
        How many threads may work. Never changes a bit of the result.

    Ctrl-C ends a long call; what was to be written to `out` is then half there.

    Returns
    -------
    out, (out, weights), (out, lse) or (out, weights, lse)
        A query that sees no key gets output 0, weights 0 and LSE -inf.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was expected and what was found. Nothing is written then.

    Examples
    --------
    >>> import numpy as np, qkv
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 2, 8, 20, 64)).astype(np.float32)
    >>> out, row = qkv.attention(q, k, v, causal=True, return_weights=[(0, 3, 19)])
    >>> out.shape, row.shape
    ((2, 8, 20, 64), (1, 20))
    """
    return _attention(
        query,
        key,
        value,
        mask,
        bias,
        causal,
        offset,
        window,
        prefix,
        scale,
        softcap,
        alibi,
        key_lengths,
        query_starts,
        key_starts,
        sinks,
        layout,
        out,
        return_weights,
        return_lse,
        threads,
    )
