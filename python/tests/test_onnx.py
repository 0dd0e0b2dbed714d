"""qkv.onnx_attention: the published cases, and what Python adds."""

import numpy as np
import pytest

import conformance
import qkv


@pytest.mark.parametrize("file", conformance.cases("onnx-attention"))
def test_published_case(file):
    case, inputs, outputs = conformance.load(file)
    if inputs["V"].dtype != inputs["Q"].dtype:
        pytest.skip("V of a dtype of its own is refused")
    results = qkv.onnx_attention(**inputs, **case["attributes"])._asdict()
    for name, expected in outputs.items():
        if results[name] is None:  # the published case repeats its input
            assert "nonpad_kv_seqlen" in inputs
            continue
        assert results[name].dtype == expected.dtype
        np.testing.assert_allclose(results[name], expected, rtol=case["rtol"], atol=case["atol"])


def tensors(B=2, H=3, Tq=4, Tk=6, D=8):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(B, H, T, D)).astype(np.float32) for T in (Tq, Tk, Tk)]


def test_four_outputs():
    q, k, v = tensors()
    past_key, past_value = k[:, :, :2] + 1, v[:, :, :2] + 1
    y, present_key, present_value, qk = qkv.onnx_attention(
        q, k, v, None, past_key, past_value, is_causal=1, qk_matmul_output_mode=3)
    np.testing.assert_array_equal(present_key, np.concatenate([past_key, k], axis=2))
    np.testing.assert_array_equal(present_value, np.concatenate([past_value, v], axis=2))
    out, weights = qkv.attention(q, present_key, present_value, causal=True, offset=2, return_weights=True)
    np.testing.assert_array_equal(y, out)
    np.testing.assert_array_equal(qk, weights)


def test_lengths_may_be_a_list():
    q, k, v = tensors()
    given = qkv.onnx_attention(q, k, v, nonpad_kv_seqlen=[3, 6])
    assert given.present_key is None and given.present_value is None
    np.testing.assert_array_equal(given.Y, qkv.attention(q, k, v, key_lengths=[3, 6]))


REFUSED = {
    "heads": (ValueError, dict(Q=np.zeros((2, 4, 24), np.float32)), "K|Q"),
    "none": (TypeError, dict(V=None), "V: expected an array, found None"),
    "mode": (ValueError, dict(qk_matmul_output_mode=4), "qk_matmul_output_mode: expected 0"),
    "causal": (ValueError, dict(is_causal=2), "is_causal: expected True, False, 1 or 0, found 2"),
    "precision": (ValueError, dict(softmax_precision=7), "softmax_precision: expected None, 1"),
    "past alone": (ValueError, dict(past_key=np.zeros((2, 3, 1, 8), np.float32)), "past_"),
    "mask": (ValueError, dict(attn_mask=np.ones((5, 6), bool)), "attn_mask: expected"),
}


@pytest.mark.parametrize("kind, arguments, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused(kind, arguments, message):
    q, k, v = tensors()
    with pytest.raises(kind, match=message) as error:
        qkv.onnx_attention(**{**dict(Q=q, K=k, V=v), **arguments})
    assert str(error.value).startswith("[qkv.onnx_attention] ")


def test_torch():
    torch = pytest.importorskip("torch")
    arrays = tensors()
    expected = qkv.onnx_attention(*arrays)
    for got, wanted in zip(qkv.onnx_attention(*map(torch.from_numpy, arrays)), expected):
        assert type(got) is torch.Tensor
        np.testing.assert_array_equal(got, wanted)
