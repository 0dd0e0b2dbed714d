"""ONNX Runtime: the block as a graph, with its contrib operators for attention or with matmuls."""

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

from block_problem import Builder

from .. import Unsupported, Variant
from ..onnx_runtime import FLOAT, session_of


def versions():
    return {"onnxruntime": ort.__version__}


class OnnxBuilder(Builder):
    """Writes nodes; keeps the shape of each value. `how`: "MHA", "Attention" (its own projection) or "MatMul"."""

    def __init__(self, how):
        self.how, self.nodes, self.constants, self.shapes, self.known = how, [], [], {}, {}

    def constant(self, array):
        key = (array.__array_interface__["data"][0], array.strides, array.shape)
        if key not in self.known:
            name = f"w{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
            self.shapes[name] = array.shape
            self.known[key] = (name, array)
        return self.known[key][0]

    def numbers(self, *values):
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def node(self, kind, inputs, shapes, domain="", **attributes):
        names = [f"{kind}{len(self.nodes)}_{i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        self.shapes.update(zip(names, shapes))
        return names[0] if len(names) == 1 else names

    def shape(self, x):
        return self.shapes[x]

    def linear(self, x, weight, bias):
        shape = (*self.shapes[x][:-1], weight.shape[0])
        y = self.node("MatMul", [x, self.constant(weight.T)], [shape])
        return self.node("Add", [y, self.constant(bias)], [shape])

    def self_attention(self, x, weight, bias, heads, causal=False):
        if self.how != "Attention":
            return super().self_attention(x, weight, bias, heads, causal)
        return self.node("Attention", [x, self.constant(weight.T), self.constant(bias)], [self.shapes[x]],
                         "com.microsoft", num_heads=heads, unidirectional=int(causal))

    def attention(self, q, k, v, heads, causal):
        if self.how == "MHA":
            return self.node("MultiHeadAttention", [q, k, v], [self.shapes[q]], "com.microsoft", num_heads=heads,
                             unidirectional=int(causal))
        B, T, width = self.shapes[q]
        if causal:
            raise Unsupported("matmuls are measured without a mask")
        q, k, v = (self.transpose(self.reshape(a, (B, T, heads, width // heads)), *order)
                   for a, order in ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)), (v, (0, 2, 1, 3))))
        y = self.matmul(self.softmax(self.matmul(q, k), (width // heads) ** -0.5), v)
        return self.reshape(self.transpose(y, 0, 2, 1, 3), (B, T, width))

    def channel_attention(self, q, k, v):
        B, H, D, N = self.shapes[q]
        width = self.shapes[v][2]
        if self.how == "Attention":
            raise Unsupported("its projection is not the detector's")
        if self.how == "MHA":
            q, k, v = (self.reshape(self.transpose(a, 0, 3, 1, 2), (B, N, H * self.shapes[a][2])) for a in (q, k, v))
            y = self.node("MultiHeadAttention", [q, k, v], [(B, N, H * width)], "com.microsoft", num_heads=H)
            return self.transpose(self.reshape(y, (B, N, H, width)), 0, 2, 3, 1)
        p = self.softmax(self.matmul(self.transpose(q, 0, 1, 3, 2), k), D**-0.5)
        return self.matmul(v, self.transpose(p, 0, 1, 3, 2))

    def matmul(self, x, y):
        return self.node("MatMul", [x, y], [(*self.shapes[x][:-1], self.shapes[y][-1])])

    def softmax(self, s, scale):
        s = self.node("Mul", [s, self.constant(np.array(scale, np.float32))], [self.shapes[s]])
        return self.node("Softmax", [s], [self.shapes[s]], axis=-1)

    def transpose(self, x, *order):
        return self.node("Transpose", [x], [tuple(self.shapes[x][i] for i in order)], perm=order)

    def layer_norm(self, x, scale, shift, eps):
        return self.node("LayerNormalization", [x, self.constant(scale), self.constant(shift)], [self.shapes[x]],
                         epsilon=eps, axis=-1)

    def gelu(self, x):
        return self.node("Gelu", [x], [self.shapes[x]], "com.microsoft")

    def silu(self, x):
        return self.node("Mul", [x, self.node("Sigmoid", [x], [self.shapes[x]])], [self.shapes[x]])

    def add(self, x, y):
        return self.node("Add", [x, y], [self.shapes[x]])

    def conv(self, x, weight, bias, groups=1):
        B, _, H, W = self.shapes[x]
        side = weight.shape[2]
        return self.node("Conv", [x, self.constant(weight), self.constant(bias)], [(B, weight.shape[0], H, W)],
                         group=groups, kernel_shape=[side, side], pads=[side // 2] * 4)

    def patches(self, x, weight, bias):
        B, _, H, W = self.shapes[x]
        dim, _, side, _ = weight.shape
        y = self.node("Conv", [x, self.constant(weight), self.constant(bias)], [(B, dim, H // side, W // side)],
                      kernel_shape=[side, side], strides=[side, side])
        return self.transpose(self.reshape(y, (B, dim, (H // side) * (W // side))), 0, 2, 1)

    def first_token(self, x):
        B, _, dim = self.shapes[x]
        return self.node("Gather", [x, self.scalar(0)], [(B, dim)], axis=1)

    def scalar(self, value):
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    def reshape(self, x, shape):
        return self.node("Reshape", [x, self.numbers(*shape)], [tuple(shape)])

    def split(self, x, sizes, axis):
        shapes = [tuple(n if i == axis else d for i, d in enumerate(self.shapes[x])) for n in sizes]
        return self.node("Split", [x, self.numbers(*sizes)], shapes, axis=axis)

    def concat(self, parts, axis):
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[part][axis] for part in parts)
        return self.node("Concat", parts, [tuple(shape)], axis=axis)


def model_of(problem, how):
    builder = OnnxBuilder(how)
    builder.shapes["x"] = problem.input.shape
    out = problem.build(builder, "x")
    graph = helper.make_graph(
        builder.nodes, "block", [helper.make_tensor_value_info("x", FLOAT, problem.input.shape)],
        [helper.make_tensor_value_info(out, FLOAT, builder.shapes[out])], builder.constants)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9), out


def by(how):
    def prepare(problem, threads):
        model, out = model_of(problem, how)
        return session_of(model, {"x": problem.input}, [out], threads, lambda array: array)

    return prepare


def variants(problem):
    return [Variant("MHA", by("MHA")), Variant("Attention", by("Attention")),
            Variant("MatMul", by("MatMul"), materialises=True)]
