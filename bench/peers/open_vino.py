"""OpenVINO's CPU plugin: the ScaledDotProductAttention operator, for latency and for throughput."""

import numpy as np
import openvino
from openvino import opset13 as op

from . import Prepared, Unsupported, Variant, repeat


def versions():
    return {"openvino": openvino.__version__.split("-")[0]}


def constant(numbers):
    return op.constant(np.array(numbers, np.int64))


def spread(x, problem, width):
    """Key or value heads, repeated for the query heads that share them."""
    group = problem.Hq // problem.Hkv
    if group == 1:
        return x
    x = op.unsqueeze(x, constant([2]))
    x = op.broadcast(x, constant([problem.B, problem.Hkv, group, problem.T, width]))
    return op.reshape(x, constant([problem.B, problem.Hq, problem.T, width]), False)


def model_of(problem, arrays, mask):
    inputs = [op.parameter(x.shape, np.float32) for x in arrays]
    q, k, v = inputs
    turned = problem.layout == "bhdt"
    if turned:
        q, k, v = (op.transpose(x, constant([0, 1, 3, 2])) for x in inputs)
    k, v = spread(k, problem, problem.D), spread(v, problem, problem.Dv)
    if mask is not None:
        inputs.append(op.parameter(mask.shape, np.float32))
        out = op.scaled_dot_product_attention(q, k, v, inputs[3], causal=False)
    else:
        out = op.scaled_dot_product_attention(q, k, v, causal=problem.causal)
    if turned:
        out = op.transpose(out, constant([0, 1, 3, 2]))
    return openvino.Model([out], inputs)


def compile_for(hint):
    def prepare(problem, threads):
        if problem.softcap or problem.weights:
            raise Unsupported("no softcap, no weights")
        *arrays, bias = problem.inputs()
        mask = None
        if problem.window or problem.key_lengths or bias is not None:
            mask = np.where(problem.mask(), np.float32(0) if bias is None else bias, -np.inf)
            mask = np.ascontiguousarray(mask.reshape(1, -1, problem.Tq, problem.T), np.float32)
        compiled = openvino.Core().compile_model(model_of(problem, arrays, mask), "CPU", {
            "PERFORMANCE_HINT": hint,
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
        })
        turned = problem.layout == "bhdt"
        return requests_of(compiled, arrays + ([] if mask is None else [mask]), hint,
                           lambda out: out.swapaxes(2, 3) if turned else out)

    return prepare


def requests_of(compiled, arrays, hint, to_numpy):
    data = [openvino.Tensor(x, shared_memory=True) for x in arrays]
    count = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") if hint == "THROUGHPUT" else 1
    requests = [compiled.create_infer_request() for _ in range(count)]
    for request in requests:
        for i, tensor in enumerate(data):
            request.set_input_tensor(i, tensor)

    def several(times):
        """`times` calls, as many at once as the plugin wants."""
        for n in range(times):
            requests[n % count].wait()
            requests[n % count].start_async()
        for request in requests:
            request.wait()

    def output(borrowed=(data, arrays)):  # nobody else keeps the memory that the plugin reads
        return to_numpy(requests[0].get_output_tensor(0).data)

    return Prepared(repeat(requests[0].infer) if count == 1 else several, output)


def variants(problem):
    return [Variant("latency", compile_for("LATENCY")), Variant("throughput", compile_for("THROUGHPUT"))]
