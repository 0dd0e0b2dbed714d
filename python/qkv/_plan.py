from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

from ._core import info as _info
from ._core import plan as _plan


@dataclass(frozen=True)
class Plan:
    """How a call of qkv.attention will be computed; str() says it in words."""

    kernel: str  #: "fused", "decode" (few queries, many keys), "reference"; "automatic": some sequences each
    target: str  #: the vector instructions
    threads: int  #: that will have work
    accumulate: str  #: the dtype that sums are kept in
    lanes: int  #: queries in a vector; this and what follows up to units is 0 for the reference
    tile: Tuple[int, int]  #: vectors of queries × keys, all in registers
    key_block: int  #: keys whose scores share a maximum; of decode, a chunk
    unit_queries: int  #: queries of a head that a thread takes at once
    units: int  #: pieces of work
    visible: int  #: (query, key) pairs that structure leaves visible
    flops: int  #: of the two products over these
    bytes: int  #: of query, key, value and output
    workspace: int  #: bytes, for all threads
    notes: Tuple[str, ...]  #: why no faster kernel, and where time is lost
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


def plan(query: Any, key: Any, value: Any, *, dtype: str = "f32", target: Optional[str] = None,
         threads: Optional[int] = None, **options: Any) -> Plan:
    """Which kernel qkv.attention would run on this, how it splits the work, and why not a faster one.

    Parameters
    ----------
    query, key, value : arrays [B, Hq, Tq, D], [B, Hkv, Tk, D] and [B, Hkv, Tk, Dv], or their shapes
        Nothing is computed, and of arrays only shape and dtype are looked at.
    dtype : "f32", "f64", "f16" or "bf16"
        If shapes are given.
    target : "scalar", "sse4", "avx2", "avx512" or "neon"
        Plans for a CPU with these instructions instead of this one.
    threads : int
    options
        Those of `qkv.attention` that the scores depend on: causal, window, mask, key_lengths, …

    Returns
    -------
    Plan

    Examples
    --------
    >>> import qkv
    >>> plan = qkv.plan((1, 8, 512, 64), (1, 8, 512, 64), (1, 8, 512, 64), causal=True)
    >>> plan.kernel, plan.visible == 8 * 512 * 513 // 2
    ('fused', True)
    """
    return Plan(**_plan(query, key, value, options, dtype, target, threads))


def info() -> Dict[str, Any]:
    """What this build and this machine have.

    Returns
    -------
    dict
        version; cpu; targets, the vector instructions that can run, the best first; threads, that
        a call may use; threading, "openmp" or "std"; projection, what computes the linear maps of
        the blocks ("qkv": our own); npz, whether .npz files can be read.

    Examples
    --------
    >>> import qkv
    >>> qkv.info()["version"] == qkv.__version__
    True
    """
    return _info()
