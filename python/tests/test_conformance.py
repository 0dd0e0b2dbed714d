"""ONNX Runtime's vectors and printed examples through qkv.attention (those of ONNX: test_onnx.py)."""

import numpy as np
import pytest

import conformance
import qkv


def split_heads(x, heads):
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def with_past(past, new):
    return new if past is None else np.concatenate([past, new], axis=2)


def attention(inputs, num_heads):
    packed = inputs["X"] @ inputs["W"] + inputs.get("qkv_bias", 0)
    return [split_heads(x, num_heads) for x in np.split(packed, 3, axis=2)], {}


def multi_head_attention(inputs, num_heads):
    q, k, v = (inputs[name] for name in "QKV")
    if "qkv_bias" in inputs:
        ends = np.cumsum([x.shape[2] for x in (q, k)])
        q, k, v = (x + b for x, b in zip((q, k, v), np.split(inputs["qkv_bias"], ends)))
    k, v = (with_past(inputs.get(p), split_heads(x, num_heads)) for p, x in (("past_key", k), ("past_value", v)))
    options = {}
    if "key_padding_mask" in inputs:
        options["mask"] = inputs["key_padding_mask"].astype(bool)[:, None, None, :]
    if "attention_bias" in inputs:
        options["bias"] = inputs["attention_bias"]
    return [split_heads(q, num_heads), k, v], options


def group_query_attention(inputs, num_heads, kv_num_heads):
    q, k, v = (inputs.get(name) for name in "QKV")
    if k is None:
        D = q.shape[2] // (num_heads + 2 * kv_num_heads)
        q, k, v = np.split(q, [num_heads * D, (num_heads + kv_num_heads) * D], axis=2)
    q, k, v = split_heads(q, num_heads), split_heads(k, kv_num_heads), split_heads(v, kv_num_heads)
    lengths = inputs["seqlens_k"].reshape(-1) + 1
    options = dict(causal=True, key_lengths=lengths, offset=lengths - q.shape[2])
    return [q, with_past(inputs.get("past_key"), k), with_past(inputs.get("past_value"), v)], options


OPERATORS = {
    "Attention(com.microsoft)": attention,
    "MultiHeadAttention": multi_head_attention,
    "GroupQueryAttention": group_query_attention,
}


@pytest.mark.parametrize("file", conformance.cases("ort-attention"))
def test_ort_case(file):
    case, inputs, outputs = conformance.load(file)
    (q, k, v), options = OPERATORS[case["op"]](inputs, **case["attributes"])
    out = qkv.attention(q, k, v, **options)
    merged = out.transpose(0, 2, 1, 3).reshape(out.shape[0], out.shape[2], -1)
    expected = next(iter(outputs.values()))
    np.testing.assert_allclose(merged.reshape(expected.shape), expected, rtol=case["rtol"], atol=case["atol"])
