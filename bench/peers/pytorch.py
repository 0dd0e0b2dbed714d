"""PyTorch: scaled_dot_product_attention by each of its CPU paths, FlexAttention, and plain matmuls."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import Prepared, Unsupported, Variant, repeat


def versions():
    return {"torch": torch.__version__}


def tensors(problem, threads):
    torch.set_num_threads(threads)
    return [None if x is None else torch.from_numpy(x) for x in problem.inputs()]


def dense_mask(problem, bias):
    """What may be seen, and the bias, as SDPA wants them: one float array with -inf."""
    hidden = torch.from_numpy(~problem.mask())
    if bias is None:
        bias = torch.zeros(1, 1, problem.Tq, problem.T)
    return bias.masked_fill(hidden, float("-inf"))


def turned(problem, call):
    """For channel-first data: its views in, a dense channel-first array out."""
    if problem.layout == "bhtd":
        return call
    return lambda q, k, v: call(q.mT, k.mT, v.mT).mT.contiguous()


def prepared(problem, call, q, k, v):
    """call(q, k, v) -> output in the problem's layout."""
    last = [None]

    def once():
        last[0] = call(q, k, v)

    def output():
        return (last[0] if problem.layout == "bhtd" else last[0].mT).numpy()

    return Prepared(repeat(no_gradients(once)), output)


def no_gradients(call):
    def guarded():
        with torch.inference_mode():
            call()

    return guarded


def sdpa(backend, padded=False):
    def prepare(problem, threads):
        if problem.softcap or problem.weights:
            raise Unsupported("no softcap, no weights")
        q, k, v, bias = tensors(problem, threads)
        options = dict(enable_gqa=problem.Hq != problem.Hkv, scale=problem.scale)
        shorter = problem.key_lengths[0] if problem.key_lengths and problem.B == 1 else problem.T
        if problem.window or bias is not None:
            options["attn_mask"] = dense_mask(problem, bias)[..., :shorter].contiguous()
        else:
            options["is_causal"] = problem.causal
        more = problem.Dv - problem.D if padded else 0

        def attend(q, k, v):
            k, v = k[:, :, :shorter], v[:, :, :shorter]
            if more:
                q, k, v = F.pad(q, (0, more)), F.pad(k, (0, more)), v.contiguous()
            return F.scaled_dot_product_attention(q, k, v, **options)

        call = turned(problem, attend)
        if backend is None:
            return prepared(problem, call, q, k, v)

        def chosen(q, k, v):
            with sdpa_kernel(backend):
                return call(q, k, v)

        return prepared(problem, chosen, q, k, v)

    return prepare


def flex(problem, threads):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if problem.weights:
        raise Unsupported("no weights")
    q, k, v, bias = tensors(problem, threads)
    left, right = problem.window or (problem.T, problem.T)
    length = problem.key_lengths[0] if problem.key_lengths else problem.T

    def seen(b, h, i, j):
        visible = (j >= i - left) & (j <= i + right) & (j < length)
        return visible & (j <= i) if problem.causal else visible

    def score(s, b, h, i, j):
        if problem.softcap:
            s = problem.softcap * torch.tanh(s / problem.softcap)
        return s + bias[0, h, i, j] if bias is not None else s

    structured = problem.causal or problem.window or problem.key_lengths
    blocks = create_block_mask(seen, None, None, problem.Tq, problem.T, "cpu") if structured else None
    torch._dynamo.reset()  # each problem is a program of its own; there is a limit for one
    compiled = torch.compile(flex_attention, dynamic=False)
    modified = score if problem.softcap or bias is not None else None

    def attend(q, k, v):
        return compiled(q, k, v, score_mod=modified, block_mask=blocks, scale=problem.scale,
                        enable_gqa=problem.Hq != problem.Hkv)

    return prepared(problem, turned(problem, attend), q, k, v)


def eager(problem, threads):
    """softmax(q·kᵀ + mask)·v in matmuls: what models run when they want the weights."""
    q, k, v, bias = tensors(problem, threads)
    masked = problem.causal or problem.window or problem.key_lengths or bias is not None
    mask = dense_mask(problem, bias) if masked else None
    group = problem.Hq // problem.Hkv
    rows = tuple(torch.tensor(problem.weight_rows()).T) if problem.weights else None

    def weights(s):
        s = s * problem.scale
        if problem.softcap:
            s = problem.softcap * torch.tanh(s / problem.softcap)
        return (s if mask is None else s + mask).softmax(-1)

    def attend(q, k, v):
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if problem.layout == "bhdt":
            return v @ weights(q.mT @ k).mT
        p = weights(q @ k.mT)
        if rows:
            p[rows]
        return p @ v

    return prepared(problem, attend, q, k, v)


def variants(problem):
    found = [
        Variant("default", sdpa(None)),
        Variant("flash", sdpa(SDPBackend.FLASH_ATTENTION)),
        Variant("math", sdpa(SDPBackend.MATH), materialises=True),
        Variant("flex", flex, slow_start=True),
        Variant("eager", eager, materialises=True),
    ]
    if problem.D < problem.Dv:
        found.append(Variant("flash, padded", sdpa(SDPBackend.FLASH_ATTENTION, padded=True)))
    return found
