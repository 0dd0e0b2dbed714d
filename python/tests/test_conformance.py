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


class Printed:
    """One of the printed examples: its inputs by name, and attention on what it makes of them."""

    def __init__(self, example):
        self.inputs = {name: numbers(value) for name, value in example["inputs"].items()}

    def __getitem__(self, name):
        return self.inputs[name]

    def linear(self, *names):
        """X·Wᵀ, with the weights of PyTorch's Linear."""
        return [self["X"] @ self[name].T for name in names]

    @staticmethod
    def run(q, k, v, **options):
        """(out, weights) of one head, [T, ·]."""
        out, weights = qkv.attention(q[None, None], k[None, None], v[None, None], return_weights=True, **options)
        return out[0, 0], weights[0, 0]

    @staticmethod
    def scores(q, k, **attributes):
        return qkv.onnx_attention(q[None, None], k[None, None], k[None, None], **attributes).qk_matmul_output[0, 0]


def numbers(value):
    return np.array([numbers(x) for x in value] if isinstance(value, list) else value, dtype=np.float64)


def simple(g):
    out, weights = g.run(g["X"], g["X"], g["X"], scale=1)
    return dict(scores=g.scores(g["X"], g["X"], scale=1.0), weights=weights, context=out)


def v1(g):
    q, k, v = (g["X"] @ g[name] for name in ("Wq", "Wk", "Wv"))
    out, weights = g.run(q, k, v)
    return dict(query_2=q[1], raw_scores_row2=g.scores(q, k, scale=1.0)[1], weights_row2=weights[1], context=out)


def v2(g):
    q, k, v = g.linear("Wq", "Wk", "Wv")
    out, weights = g.run(q, k, v)
    return dict(context=out, weights=weights, causal_weights=g.run(q, k, v, causal="top_left")[1],
                masked_raw_scores=g.scores(q, k, scale=1.0, is_causal=True, qk_matmul_output_mode=2))


def two_heads(g):
    return {f"context_h{h}": g.run(*g.linear(f"Wq_h{h}", f"Wk_h{h}", f"Wv_h{h}"), causal=True)[0] for h in (0, 1)}


def exercise(g):
    return dict(context=g.run(*g.linear("Wq", "Wk", "Wv"))[0])


def multi_head(g):
    block = qkv.TransformerAttention.from_arrays(g["Wq"], g["Wk"], g["Wv"], g["Wo"], b_o=g["bo"], num_heads=2)
    return dict(Y=block(g["X"][None], causal=True)[0])


def batched(g):
    a = g["A"]
    return dict(scores=np.stack([g.scores(x, x, scale=1.0) for x in a.reshape(-1, *a.shape[-2:])]).reshape(
        *a.shape[:-1], a.shape[-2])[tuple([0] * (a.ndim - 3))])


def given(g, **options):
    out, weights = g.run(g["Q"], g["K"], g["V"], **options)
    return dict(weights=weights, context=out)


def keras_mask(g):
    """Keras hides keys in the softmax, and queries only afterwards, in the output."""
    keys, queries = g["key_mask"].astype(bool), g["query_mask"].astype(bool)
    return dict(weights=given(g, scale=1, mask=keys)["weights"],
                context=given(g, scale=1, mask=queries[:, None] & keys)["context"])


def d2l(g):
    """Any query will do: equal keys weigh the same for each."""
    k, v = np.broadcast_to(g["K"], (2, 1, 10, 2)), np.broadcast_to(g["V"], (2, 1, 10, 4))
    q = np.array([0.5, -3, 7, 0.25]).reshape(2, 1, 1, 2)
    return dict(context=qkv.attention(q, k, v, key_lengths=g["valid_lens"].astype(int))[:, 0, 0])


def padding_bias(g):
    bias = g["attention_bias"] - 10000 * (g["key_padding_mask"] == 0)
    out, _ = g.run(g["Q"], g["K"], g["V"], scale=1, bias=bias)
    return dict(context=out, qk=g.scores(g["Q"], g["K"], attn_mask=bias, scale=1.0, qk_matmul_output_mode=2))


def empty(g):
    for q, k in (((0, 1, 2, 1), (0, 1, 2, 1)), ((1, 1, 0, 1), (1, 1, 2, 1)), ((1, 1, 2, 1), (1, 1, 0, 1))):
        out = qkv.attention(np.zeros(q), np.zeros(k), np.zeros(k))
        assert out.shape == q and not out.any()
    return {}  # the example says it in words


def alignment(g):
    q, k = np.zeros((3, 1)), np.zeros((4, 1))
    return {name: (g.run(q, k, k, causal=causal)[1] > 0).astype(float)
            for name, causal in (("upper_left", "top_left"), ("lower_right", "bottom_right"))}


def window(g):
    zero = np.zeros((5, 1))
    return dict(Y=g.run(zero, zero, g["V"].reshape(5, 1), window=(1, 2))[0][:, 0])


PRINTED = {
    "llmfs_simple_self_attention": simple,
    "llmfs_self_attention_v1": v1,
    "llmfs_self_attention_v2_and_causal": v2,
    "llmfs_causal_attention_2heads_stacked": two_heads,
    "llmfs_causal_attention_printed_weights": two_heads,
    "llmfs_exercise_3_1": exercise,
    "llmfs_multi_head_attention": multi_head,
    "llmfs_batched_qk": batched,
    "tf_tutorial_temp_qkv": given,
    "keras_attention_correctness": lambda g: given(g, scale=1),
    "keras_attention_with_mask": keras_mask,
    "d2l_valid_lens": d2l,
    "ort_neginf_fully_masked": lambda g: given(g, bias=g["mask"]),
    "ort_output_qk_padding_bias": padding_bias,
    "ort_empty_dims": empty,
    "torch_causal_alignment": alignment,
    "onnx_bidirectional_window": window,
}


@pytest.mark.parametrize("example", conformance.printed())
def test_printed_example(example):
    results = PRINTED[example["id"]](Printed(example))
    assert set(results) == set(example["expected"]) or example["id"] == "ort_empty_dims"
    for name, result in results.items():
        np.testing.assert_allclose(
            result, numbers(example["expected"][name]), rtol=0, atol=example["suggested_atol"], err_msg=name)
        if "float64_values" in example:  # a few hundred rounding units: as in the C++ test
            np.testing.assert_allclose(
                result, numbers(example["float64_values"][name]), rtol=1e-13, atol=1e-13, err_msg=name)
