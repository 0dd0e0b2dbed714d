"""A row of shapes.json: its sizes, its data, its FLOPs, and what comes out of it in f64."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SHAPES = Path(__file__).with_name("shapes.json")


def aligned(shape, like=None):
    """An f32 array that begins with a line of the cache, as frameworks make theirs (NumPy: with 16 bytes)."""
    count = int(np.prod(shape))
    memory = np.empty(count + 16, np.float32)
    first = -memory.ctypes.data % 64 // 4
    array = memory[first:first + count].reshape(shape)
    if like is not None:
        array[...] = like
    return array


@dataclass
class Problem:
    """One attention. Dimensions as everywhere: B, Hq, Hkv, T (keys), Tq (queries: T unless given), D, Dv."""

    name: str
    heads: object
    T: int
    D: int
    B: int = 1
    Dv: int = 0
    Tq: int = 0
    causal: bool = False
    softcap: float = 0.0
    bias: bool = False
    key_lengths: list = None
    window: list = None
    weights: int = 0
    layout: str = "bhtd"
    goal: list = None
    beside: str = None  # another row, which it is judged by:
    slower: float = None  # at most so many % slower,
    faster: float = None  # at least so many times as fast
    memory: bool = False
    Hq: int = field(init=False)
    Hkv: int = field(init=False)

    def __post_init__(self):
        self.Hq, self.Hkv = self.heads if isinstance(self.heads, list) else (self.heads, self.heads)
        self.Dv = self.Dv or self.D
        self.Tq = self.Tq or self.T

    def facts(self):
        """What makes it: Problem(**facts)."""
        return {name: value for name, value in vars(self).items() if name not in ("Hq", "Hkv")}

    @property
    def scale(self):
        return self.D**-0.5

    def inputs(self):
        """query, key, value: f32, dense in the layout; and the bias, or None. Same in every process."""
        rng = np.random.default_rng(len(self.name) + self.T + self.D)
        shapes = [(self.B, self.Hq, self.Tq, self.D), (self.B, self.Hkv, self.T, self.D),
                  (self.B, self.Hkv, self.T, self.Dv)]
        if self.layout == "bhdt":
            shapes = [(b, h, d, t) for b, h, t, d in shapes]
        arrays = [aligned(shape, rng.standard_normal(shape, dtype=np.float32)) for shape in shapes]
        bias = None
        if self.bias:
            shape = (1, self.Hq, self.Tq, self.T)
            bias = aligned(shape, rng.standard_normal(shape, dtype=np.float32))
        return (*arrays, bias)

    def visible(self, batch=0):
        """First and past-the-last key that each query sees, by structure: two arrays [Tq]."""
        i = np.arange(self.Tq)
        first, last = np.zeros_like(i), np.full_like(i, self.T)
        if self.causal:
            last = np.minimum(last, i + 1)
        if self.window:
            left, right = self.window
            first = np.maximum(first, i - left) if left >= 0 else first
            last = np.minimum(last, i + right + 1) if right >= 0 else last
        if self.key_lengths:
            last = np.minimum(last, self.key_lengths[batch])
        return first, np.maximum(first, last)

    def mask(self, batch=0):
        """The same as a dense bool array [Tq, T], True where visible."""
        first, last = self.visible(batch)
        j = np.arange(self.T)
        return (j >= first[:, None]) & (j < last[:, None])

    def pairs(self):
        """How many (query, key) pairs there are to compute."""
        total = 0
        for b in range(self.B):
            first, last = self.visible(b)
            total += int((last - first).sum())
        return total * self.Hq

    def flops(self):
        """2·pairs·(D + Dv): the two products, visible part only."""
        return 2 * self.pairs() * (self.D + self.Dv)

    def bytes(self):
        """What has to be read and written at least: query, key, value, bias, output."""
        elements = self.B * (self.Hq * self.Tq + self.Hkv * self.T) * (self.D + self.Dv)
        return 4 * (elements + (self.Hq * self.Tq * self.T if self.bias else 0))

    def score_bytes(self):
        """The matrix of scores, for those who have it in memory."""
        return 4 * self.B * self.Hq * self.Tq * self.T

    def sample_rows(self, count=24):
        """(batch, head, query) rows for a check; the first and the last query are among them."""
        rng = np.random.default_rng(7)
        rows = [(int(rng.integers(self.B)), int(rng.integers(self.Hq)), int(rng.integers(self.Tq)))
                for _ in range(count)]
        return [(0, 0, 0), (self.B - 1, self.Hq - 1, self.Tq - 1), *rows]

    def weight_rows(self):
        return self.sample_rows(self.weights)[2:]

    def expected(self, rows):
        """These rows of the output in f64, straight from the formulas: [n, Dv]."""
        q, k, v, bias = self.inputs()
        if self.layout == "bhdt":
            q, k, v = (x.swapaxes(2, 3) for x in (q, k, v))
        group = self.Hq // self.Hkv
        out = np.empty((len(rows), self.Dv))
        for n, (b, h, i) in enumerate(rows):
            first, last = (int(x[i]) for x in self.visible(b))
            keys = k[b, h // group, first:last].astype(np.float64)
            s = keys @ q[b, h, i].astype(np.float64) * self.scale
            if self.softcap:
                s = self.softcap * np.tanh(s / self.softcap)
            if bias is not None:
                s = s + bias[0, h, i, first:last]
            p = np.exp(s - s.max())
            out[n] = p / p.sum() @ v[b, h // group, first:last].astype(np.float64)
        return out


def load_shapes(path=SHAPES):
    return [Problem(**row) for row in json.loads(Path(path).read_text())["shapes"]]


def load_sweeps(path=SHAPES):
    """{sweep: [Problem, …]}, each problem named sweep=value."""
    sweeps = {}
    for row in json.loads(Path(path).read_text())["sweeps"]:
        sweeps[row["name"]] = [
            Problem(name=f"{row['name']}={value}", **{**row["base"], row["vary"]: value})
            for value in row["values"]
        ]
    return sweeps
