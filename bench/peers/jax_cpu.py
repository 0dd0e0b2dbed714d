"""JAX on the CPU: jax.nn.dot_product_attention under jit, and the same in plain jnp."""

import jax
import jax.numpy as jnp
import numpy as np

from . import Prepared, Unsupported, Variant, repeat

jax.config.update("jax_platforms", "cpu")


def versions():
    return {"jax": jax.__version__}


def compiled(problem, attend, arrays):
    """attend(*arrays) under jit -> output; [B, T, H, D] or channel-first as the problem says."""
    function = jax.jit(attend)
    last = [None]

    def once():
        last[0] = jax.block_until_ready(function(*arrays))

    def output():
        result = np.asarray(last[0][0] if isinstance(last[0], tuple) else last[0])
        return result.swapaxes(2, 3) if problem.layout == "bhdt" else result.swapaxes(1, 2)

    return Prepared(repeat(once), output)


def arrays_of(problem):
    """JAX's own order is [B, T, H, D]; channel-first data stays as it is."""
    q, k, v, bias = problem.inputs()
    if problem.layout == "bhtd":
        q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
    return [jnp.asarray(x) for x in (q, k, v)], None if bias is None else jnp.asarray(bias)


def dot_product_attention(problem, threads):
    if problem.softcap or problem.weights:
        raise Unsupported("no softcap, no weights")
    arrays, bias = arrays_of(problem)
    lengths = None if problem.key_lengths is None else jnp.asarray(problem.key_lengths)
    options = dict(is_causal=problem.causal, key_value_seq_lengths=lengths)
    if problem.window:
        options["local_window_size"] = tuple(problem.window)

    def attend(q, k, v):
        if problem.layout == "bhdt":  # [B, H, D, T] -> [B, T, H, D], and back
            q, k, v = (x.transpose(0, 3, 1, 2) for x in (q, k, v))
        out = jax.nn.dot_product_attention(q, k, v, bias=bias, **options)
        return out.transpose(0, 2, 3, 1) if problem.layout == "bhdt" else out

    return compiled(problem, attend, arrays)


def plain(problem, threads):
    arrays, bias = arrays_of(problem)
    masked = problem.causal or problem.window or problem.key_lengths
    seen = jnp.asarray(problem.mask()) if masked else None
    rows = tuple(np.array(problem.weight_rows()).T) if problem.weights else None
    group = problem.Hq // problem.Hkv
    scores, values = {"bhtd": ("bihd,bjhd->bhij", "bhij,bjhd->bihd"),
                      "bhdt": ("bhdi,bhdj->bhij", "bhij,bhdj->bhdi")}[problem.layout]

    def attend(q, k, v):
        if group > 1:
            k, v = jnp.repeat(k, group, 2), jnp.repeat(v, group, 2)
        s = jnp.einsum(scores, q, k) * problem.scale
        if problem.softcap:
            s = problem.softcap * jnp.tanh(s / problem.softcap)
        s = s if bias is None else s + bias
        p = jax.nn.softmax(s if seen is None else jnp.where(seen, s, -jnp.inf), axis=-1)
        out = jnp.einsum(values, p, v)
        return (out, p[rows]) if rows else out

    return compiled(problem, attend, arrays)


def variants(problem):
    return [Variant("dpa", dot_product_attention, materialises=True),
            Variant("jnp", plain, materialises=True)]
