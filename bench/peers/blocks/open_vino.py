"""OpenVINO's CPU plugin: the block of its own operators, one call at a time, as the others."""

import numpy as np
import openvino
from openvino import opset13 as op

from block_problem import Builder

from .. import Variant
from ..open_vino import constant, requests_of


def versions():
    return {"openvino": openvino.__version__.split("-")[0]}


class OpenVinoBuilder(Builder):
    def shape(self, x):
        return tuple(x.get_output_shape(0)) if hasattr(x, "get_output_shape") else tuple(x.get_shape())

    def constant(self, array):
        return op.constant(np.ascontiguousarray(array))

    def linear(self, x, weight, bias):
        return op.add(op.matmul(x, self.constant(weight), False, True), self.constant(bias))

    def attention(self, q, k, v, heads, causal):
        B, T, width = self.shape(q)
        q, k, v = (op.transpose(self.reshape(a, (B, T, heads, width // heads)), constant([0, 2, 1, 3]))
                   for a in (q, k, v))
        y = op.scaled_dot_product_attention(q, k, v, causal=causal)
        return self.reshape(op.transpose(y, constant([0, 2, 1, 3])), (B, T, width))

    def channel_attention(self, q, k, v):
        q, k, v = (op.transpose(a, constant([0, 1, 3, 2])) for a in (q, k, v))
        return op.transpose(op.scaled_dot_product_attention(q, k, v, causal=False), constant([0, 1, 3, 2]))

    def layer_norm(self, x, scale, shift, eps):
        y = op.mvn(x, constant([-1]), True, eps, "INSIDE_SQRT")
        return op.add(op.multiply(y, self.constant(scale)), self.constant(shift))

    def gelu(self, x):
        return op.gelu(x, "erf")

    def silu(self, x):
        return op.swish(x)

    def add(self, x, y):
        return op.add(x, y)

    def conv(self, x, weight, bias, groups=1):
        edge = [weight.shape[2] // 2] * 2
        if groups == 1:
            y = op.convolution(x, self.constant(weight), [1, 1], edge, edge, [1, 1])
        else:
            y = op.group_convolution(x, self.constant(weight[:, None]), [1, 1], edge, edge, [1, 1])
        return op.add(y, self.constant(bias.reshape(1, -1, 1, 1)))

    def patches(self, x, weight, bias):
        side = list(weight.shape[2:])
        y = op.convolution(x, self.constant(weight), side, [0, 0], [0, 0], [1, 1])
        y = op.add(y, self.constant(bias.reshape(1, -1, 1, 1)))
        B, dim, H, W = self.shape(y)
        return op.transpose(self.reshape(y, (B, dim, H * W)), constant([0, 2, 1]))

    def first_token(self, x):
        return op.gather(x, op.constant(np.array(0, np.int64)), op.constant(np.array(1, np.int64)))

    def reshape(self, x, shape):
        return op.reshape(x, constant(shape), False)

    def split(self, x, sizes, axis):
        return op.variadic_split(x, op.constant(np.array(axis, np.int64)), constant(sizes)).outputs()

    def concat(self, parts, axis):
        return op.concat(parts, axis)


def prepare(problem, threads):
    x = op.parameter(problem.input.shape, np.float32)
    model = openvino.Model([problem.build(OpenVinoBuilder(), x)], [x])
    compiled = openvino.Core().compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads})
    return requests_of(compiled, [problem.input], "LATENCY", lambda out: out)


def variants(problem):
    return [Variant("latency", prepare)]
