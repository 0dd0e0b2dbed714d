"""ONNX Runtime: its contrib operators MultiHeadAttention and GroupQueryAttention, the standard
Attention of opset 23, and the matmuls that exporters write."""

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from . import Prepared, Unsupported, Variant, repeat

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def versions():
    return {"onnxruntime": ort.__version__}


class Graph:
    """A model, written node by node."""

    def __init__(self, problem):
        self.problem, self.nodes, self.inputs, self.constants, self.data = problem, [], [], [], {}

    def input(self, name, array):
        kind = {"float32": FLOAT, "int32": INT32}[array.dtype.name]
        self.inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        self.data[name] = np.ascontiguousarray(array)
        return name

    def constant(self, array):
        name = f"constant{len(self.constants)}"
        array = np.asarray(array)
        kind = INT64 if array.dtype == np.int64 else FLOAT
        self.constants.append(helper.make_tensor(name, kind, array.shape, array.ravel()))
        return name

    def node(self, kind, inputs, outputs=1, domain="", **attributes):
        names = [f"{kind}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def transpose(self, x, *perm):
        return self.node("Transpose", [x], perm=perm)

    def reshape(self, x, *shape):
        return self.node("Reshape", [x, self.constant(np.array(shape, np.int64))])

    def merged(self, name, array, turned):
        """[B, T, H·D] of a [B, H, T, D] array, or of a channel-first one that is turned in the graph."""
        if turned:
            B, H, D, T = array.shape
            return self.reshape(self.transpose(self.input(name, array), 0, 3, 1, 2), B, T, H * D)
        B, H, T, D = array.shape
        return self.input(name, array.swapaxes(1, 2).reshape(B, T, H * D))

    def split(self, x):
        """[B, H, Dv, T] of a [B, T, H·Dv]."""
        p = self.problem
        return self.transpose(self.reshape(x, p.B, p.Tq, p.Hq, p.Dv), 0, 2, 3, 1)

    def finish(self, out, threads, to_numpy, more=()):
        outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in (out, *more)]
        graph = helper.make_graph(self.nodes, "attention", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return session_of(model, self.data, [out, *more], threads, to_numpy)


def session_of(model, data, outputs, threads, to_numpy):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in data.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name in outputs:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    for name, value in zip(outputs, binding.get_outputs()):
        binding.bind_ortvalue_output(name, value)  # from now on into the same memory
    return Prepared(repeat(lambda: session.run_with_iobinding(binding)),
                    lambda: to_numpy(binding.get_outputs()[0].numpy()))


def mask_of(problem, bias):
    """What may be seen, and the bias, as one float array; None when there is neither."""
    if not (problem.window or problem.key_lengths or problem.causal) and bias is None:
        return None
    mask = np.where(problem.mask(), np.float32(0) if bias is None else bias, np.float32(-np.inf))
    return mask.reshape(1, -1, problem.Tq, problem.T).astype(np.float32)


def from_merged(problem):
    shape = (problem.B, problem.Tq, problem.Hq, problem.Dv)
    return lambda out: out.reshape(shape).swapaxes(1, 2)


def multi_head_attention(problem, threads):
    if problem.softcap or problem.weights or problem.Hq != problem.Hkv:
        raise Unsupported("no softcap, no weights, no grouped heads")
    graph, turned = Graph(problem), problem.layout == "bhdt"
    q, k, v, bias = problem.inputs()
    names = [graph.merged(*pair, turned) for pair in (("q", q), ("k", k), ("v", v))]
    attributes = dict(num_heads=problem.Hq, scale=problem.scale)
    if problem.window or problem.key_lengths or bias is not None:
        names += ["", "", graph.input("bias", mask_of(problem, bias))]
    elif problem.causal:
        attributes["unidirectional"] = 1
    out = graph.node("MultiHeadAttention", names, domain="com.microsoft", **attributes)
    if turned:
        return graph.finish(graph.split(out), threads, lambda x: x.swapaxes(2, 3))
    return graph.finish(out, threads, from_merged(problem))


def group_query_attention(problem, threads):
    if not problem.causal or problem.weights or problem.layout != "bhtd" or problem.D != problem.Dv:
        raise Unsupported("causal only, no weights, one width")
    if problem.window and problem.window[1] != 0:
        raise Unsupported("windows to the left only")
    graph = Graph(problem)
    q, k, v, bias = problem.inputs()
    names = [graph.merged(*pair, False) for pair in (("q", q), ("k", k), ("v", v))]
    lengths = np.full(problem.B, problem.T - 1, np.int32)
    names += ["", "", graph.input("lengths", lengths),
              graph.input("total", np.array(problem.T, np.int32).reshape(1))]
    if bias is not None or problem.key_lengths:
        hidden = mask_of(problem, bias)
        names += ["", "", "", graph.input("bias", hidden)]
    attributes = dict(num_heads=problem.Hq, kv_num_heads=problem.Hkv, scale=problem.scale)
    if problem.softcap:
        attributes["softcap"] = float(problem.softcap)
    if problem.window:
        attributes["local_window_size"] = problem.window[0] + 1
    out, *_ = graph.node("GroupQueryAttention", names, 3, "com.microsoft", **attributes)
    return graph.finish(out, threads, from_merged(problem))


def attention_23(problem, threads):
    graph, turned = Graph(problem), problem.layout == "bhdt"
    q, k, v, bias = problem.inputs()
    names = [graph.input(name, x) for name, x in (("q", q), ("k", k), ("v", v))]
    if turned:
        names = [graph.transpose(name, 0, 1, 3, 2) for name in names]
    attributes = dict(scale=problem.scale, is_causal=int(problem.causal))
    if problem.softcap:
        attributes["softcap"] = float(problem.softcap)
    if problem.window or problem.key_lengths or bias is not None:
        names.append(graph.input("mask", mask_of(problem, bias)))
        attributes["is_causal"] = 0
    if not problem.weights:
        out = graph.node("Attention", names, **attributes)
        if turned:
            return graph.finish(graph.transpose(out, 0, 1, 3, 2), threads, lambda x: x.swapaxes(2, 3))
        return graph.finish(out, threads, lambda x: x)
    out, _, _, weights = graph.node("Attention", names, 4, qk_matmul_output_mode=3, **attributes)
    return graph.finish(out, threads, lambda x: x, [weights])


def matmuls(problem, threads):
    if problem.weights or problem.softcap or problem.Hq != problem.Hkv:
        raise Unsupported("measured for plain heads only")
    graph, turned = Graph(problem), problem.layout == "bhdt"
    q, k, v, bias = problem.inputs()
    names = [graph.input(name, x) for name, x in (("q", q), ("k", k), ("v", v))]
    q, k, v = names
    if turned:
        s = graph.node("MatMul", [graph.transpose(q, 0, 1, 3, 2), k])
    else:
        s = graph.node("MatMul", [q, graph.transpose(k, 0, 1, 3, 2)])
    s = graph.node("Mul", [s, graph.constant(np.float32(problem.scale))])
    mask = mask_of(problem, bias)
    if mask is not None:
        s = graph.node("Add", [s, graph.input("mask", mask)])
    p = graph.node("Softmax", [s], axis=-1)
    if turned:
        out = graph.node("MatMul", [v, graph.transpose(p, 0, 1, 3, 2)])
        return graph.finish(out, threads, lambda x: x.swapaxes(2, 3))
    return graph.finish(graph.node("MatMul", [p, v]), threads, lambda x: x)


def variants(problem):
    return [
        Variant("MHA", multi_head_attention),
        Variant("GQA", group_query_attention),
        Variant("Attention-23", attention_23, materialises=True),
        Variant("MatMul", matmuls, materialises=True),
    ]
