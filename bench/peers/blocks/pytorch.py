"""PyTorch: the block of F.linear, SDPA (or matmuls) and convolutions, eager and compiled, and nn.MultiheadAttention."""

import numpy as np
import torch
import torch.nn.functional as F

from block_problem import Builder

from .. import Prepared, Unsupported, Variant, repeat


def versions():
    return {"torch": torch.__version__}


class TorchBuilder(Builder):
    """Its functions; `plain` writes attention as two matmuls and a softmax. Tensors of weights are made once."""

    def __init__(self, plain=False):
        self.plain, self.known = plain, {}

    def tensor(self, array):
        key = (array.__array_interface__["data"][0], array.strides)
        if key not in self.known:
            self.known[key] = (torch.from_numpy(np.array(array, order="C")), array)
        return self.known[key][0]

    def shape(self, x):
        return x.shape

    def constant(self, array):
        return self.tensor(array)

    def linear(self, x, weight, bias):
        return F.linear(x, self.tensor(weight), self.tensor(bias))

    def attention(self, q, k, v, heads, causal):
        q, k, v = (a.unflatten(2, (heads, -1)).transpose(1, 2) for a in (q, k, v))
        if self.plain:
            s = q @ k.mT * q.shape[-1] ** -0.5
            if causal:
                T = s.shape[-1]
                s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
            y = s.softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2).flatten(2)

    def channel_attention(self, q, k, v):
        if self.plain:
            return v @ (q.mT @ k * q.shape[2] ** -0.5).softmax(-1).mT
        return F.scaled_dot_product_attention(q.mT, k.mT, v.mT).mT

    def layer_norm(self, x, scale, shift, eps):
        return F.layer_norm(x, (x.shape[-1],), self.tensor(scale), self.tensor(shift), eps)

    def gelu(self, x):
        return F.gelu(x)

    def silu(self, x):
        return F.silu(x)

    def add(self, x, y):
        return x + y

    def conv(self, x, weight, bias, groups=1):
        return F.conv2d(x, self.tensor(weight), self.tensor(bias), padding=weight.shape[2] // 2, groups=groups)

    def patches(self, x, weight, bias):
        return F.conv2d(x, self.tensor(weight), self.tensor(bias), stride=weight.shape[2]).flatten(2).mT

    def first_token(self, x):
        return x[:, 0]

    def reshape(self, x, shape):
        return x.reshape(shape)

    def split(self, x, sizes, axis):
        return x.split(sizes, axis)

    def concat(self, parts, axis):
        return torch.cat(parts, axis)


def prepared(call, x, threads):
    torch.set_num_threads(threads)
    x, last = torch.from_numpy(x), [None]

    def once():
        with torch.inference_mode():
            last[0] = call(x)

    return Prepared(repeat(once), lambda: last[0].numpy())


def eager(plain):
    def prepare(problem, threads):
        builder = TorchBuilder(plain)
        return prepared(lambda x: problem.build(builder, x), problem.input, threads)

    return prepare


def traced(problem, plain):
    """The block as a graph of ATen calls, with its weights as attributes: what a compiler likes best."""
    from torch.fx.experimental.proxy_tensor import make_fx

    builder = TorchBuilder(plain)
    with torch.no_grad():
        return make_fx(lambda x: problem.build(builder, x))(torch.from_numpy(problem.input))


def compiled(plain, frozen):
    def prepare(problem, threads):
        torch._dynamo.reset()
        module = traced(problem, plain).eval()
        options = {"freezing": True} if frozen else {}
        return prepared(torch.compile(module, dynamic=False, options=options), problem.input, threads)

    return prepare


def nn_attention(problem, threads):
    if problem.kind != "transformer":
        raise Unsupported("for the Transformer's block only")
    module = torch.nn.MultiheadAttention(problem.dim, problem.heads, batch_first=True).eval()
    module.load_state_dict({name: torch.from_numpy(w) for name, w in problem.weights.items()})
    return prepared(lambda x: module(x, x, x, need_weights=False)[0], problem.input, threads)


def variants(problem):
    found = [Variant("eager", eager(False)), Variant("eager, matmuls", eager(True), materialises=True),
             Variant("compiled", compiled(False, False), slow_start=True),
             Variant("frozen", compiled(False, True), slow_start=True),
             Variant("frozen, matmuls", compiled(True, True), materialises=True, slow_start=True)]
    if problem.kind == "transformer":
        found.append(Variant("nn.MHA", nn_attention))
    return found
