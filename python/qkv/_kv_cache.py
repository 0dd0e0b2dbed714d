from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from ._arguments import integer
from ._core import KVCache as _KVCache

Array = Any
Ids = Union[int, Sequence[int]]


def _id(sequence: int) -> int:
    return integer("qkv.KVCache", "sequence", sequence)


def _ids(sequences: Ids) -> List[int]:
    if not hasattr(sequences, "__len__") or getattr(sequences, "ndim", 1) == 0:
        return [integer("qkv.KVCache", "sequences", sequences)]
    return [integer("qkv.KVCache", f"sequences[{i}]", one) for i, one in enumerate(sequences)]


def _number(name: str, value: int) -> int:
    return integer("qkv.KVCache", name, value)


class KVCache:
    """Keys and values of past tokens, for all layers of a decoder.

    Parameters
    ----------
    layers, heads, D, Dv : int
        `heads` is the number of key heads; Dv is D unless given.
    capacity : int
        Tokens: of one sequence ("contiguous"), of its ring ("windowed"), or of all together ("paged").
    kind : "contiguous", "paged" or "windowed"
        In one piece a sequence; in pages that forks share until one of them writes; or in a ring of
        which every query sees the last `window` tokens.
    storage : "f32", "f16", "bf16" or "int8"
        int8 has one scale for each token and head.
    sequences : int
        How many at a time; a paged cache has any number.
    page_tokens : int
        Of a paged cache; a multiple of 16.

    Examples
    --------
    >>> import numpy as np, qkv
    >>> cache = qkv.KVCache(layers=1, heads=2, D=8, capacity=64)
    >>> s = cache.add()
    >>> k, v, q = np.random.default_rng(0).normal(size=(3, 1, 5, 2, 8)).astype(np.float32)
    >>> cache.append(s, k, v)                                # [layers, tokens, heads, D]
    >>> last = q[:, -1:].transpose(0, 2, 1, 3)               # [B, heads, 1, D]
    >>> out = cache.attention(last, layer=0, sequences=s)
    >>> dense = qkv.attention(last, k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3))
    >>> bool(np.allclose(out, dense, atol=1e-6)), cache.length(s)
    (True, 5)
    """

    def __init__(
        self,
        *,
        heads: int,
        D: int,
        capacity: int,
        layers: int = 1,
        Dv: Optional[int] = None,
        kind: str = "contiguous",
        storage: str = "f32",
        sequences: int = 1,
        page_tokens: int = 64,
        window: Optional[int] = None,
    ) -> None:
        self._core = _KVCache.make(layers, heads, D, Dv, kind, storage, capacity, sequences, page_tokens, window)

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> "KVCache":
        """What `save` wrote. A damaged file is refused."""
        cache = cls.__new__(cls)
        cache._core = _KVCache.load(os.fspath(path))
        return cache

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a .safetensors file, aside and renamed. Reservations are not kept."""
        self._core.save(os.fspath(path))

    def add(self) -> int:
        """A new, empty sequence."""
        return self._core.add()

    def fork(self, sequence: int) -> int:
        """A second sequence with the same tokens."""
        return self._core.fork(_id(sequence))

    def release(self, sequence: int) -> None:
        self._core.release(_id(sequence))

    def truncate(self, sequence: int, length: int) -> None:
        """Forgets the tokens from `length` on."""
        self._core.truncate(_id(sequence), _number("length", length))

    def reserve(self, sequences: Ids, tokens: int) -> None:
        """Makes room for new tokens, in all of the sequences or in none."""
        self._core.reserve(_ids(sequences), _number("tokens", tokens))

    def write(self, sequence: int, layer: int, key: Array, value: Array) -> None:
        """The reserved tokens of one layer: key [tokens, heads, D], value [tokens, heads, Dv]."""
        self._core.write(_id(sequence), _number("layer", layer), key, value)

    def commit(self, sequences: Ids) -> None:
        """Makes the reserved tokens past ones, once every layer was written."""
        self._core.commit(_ids(sequences))

    def rollback(self, sequence: int) -> None:
        """Forgets a reservation."""
        self._core.rollback(_id(sequence))

    def append(self, sequence: int, key: Array, value: Array) -> None:
        """reserve, write and commit: key [layers, tokens, heads, D], value [layers, tokens, heads, Dv]."""
        self._core.write(_id(sequence), None, key, value)

    def length(self, sequence: int) -> int:
        return self._core.length(_id(sequence))

    def pending(self, sequence: int) -> int:
        """Tokens that are reserved."""
        return self._core.pending(_id(sequence))

    def first(self, sequence: int) -> int:
        """The oldest token that is kept: 0 unless windowed."""
        return self._core.first(_id(sequence))

    @property
    def sequences(self) -> List[int]:
        return self._core.sequences()

    def keys(self, sequence: int, layer: int = 0) -> Array:
        """A copy in f32, [heads, tokens, D]."""
        return self._core.tokens(_id(sequence), _number("layer", layer), False)

    def values(self, sequence: int, layer: int = 0) -> Array:
        """A copy in f32, [heads, tokens, Dv]."""
        return self._core.tokens(_id(sequence), _number("layer", layer), True)

    def usage(self) -> Dict[str, int]:
        """sequences, tokens, pages, pages_used, pages_free, pages_shared, bytes, bytes_used."""
        return self._core.usage()

    def attention(
        self,
        query: Array,
        layer: int = 0,
        sequences: Ids = 0,
        *,
        scale: Optional[float] = None,
        softcap: Optional[float] = None,
        causal: bool = True,
        window: Optional[Tuple[int, int]] = None,
        key_lengths: Optional[Any] = None,
        alibi: Optional[Any] = None,
        sinks: Optional[Any] = None,
        out: Optional[Array] = None,
        return_weights: bool = False,
        return_lse: bool = False,
        threads: Optional[int] = None,
    ) -> Any:
        """Attention of query [B, Hq, Tq, D] over one layer of B sequences.

        The queries are the last Tq tokens of their sequence, reserved ones included. Options and
        results are those of `qkv.attention`; weights are [B, Hq, Tq, longest sequence], in f32.
        """
        return self._core.attention(
            query, _number("layer", layer), _ids(sequences), scale, softcap, causal, window, key_lengths, alibi, sinks, out,
            return_weights, return_lse, threads,
        )  # fmt: skip
