"""qkv.attention, as a user calls it. QKV_TARGET in the environment chooses the SIMD target."""

import qkv
from problem import aligned

from . import Prepared, Variant, repeat


def versions():
    return {"qkv": qkv.__version__}


def prepare(problem, threads):
    q, k, v, bias = problem.inputs()
    shape = (problem.B, problem.Hq, problem.Tq, problem.Dv)
    out = aligned(shape if problem.layout == "bhtd" else (*shape[:2], shape[3], shape[2]))
    options = dict(
        causal="top_left" if problem.causal else None,
        softcap=problem.softcap or None,
        bias=bias,
        key_lengths=problem.key_lengths,
        window=tuple(problem.window) if problem.window else None,
        layout=problem.layout,
        out=out,
        return_weights=problem.weight_rows() if problem.weights else False,
        threads=threads,
    )
    return Prepared(
        repeat(lambda: qkv.attention(q, k, v, **options)),
        lambda: out if problem.layout == "bhtd" else out.swapaxes(2, 3),
    )


def variants(problem):
    return [Variant("fused", prepare)]
