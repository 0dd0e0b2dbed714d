"""PyTorch's and JAX's arrays: borrowed, and results are theirs."""

import numpy as np
import pytest

import oracle
import qkv
from test_attention import CLOSE, tensors


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def test_torch_in_torch_out(torch):
    arrays = tensors()
    out, weights, lse = qkv.attention(
        *map(torch.from_numpy, arrays), key_lengths=torch.tensor([37, 5]),
        mask=torch.ones(19, 37, dtype=torch.bool), return_weights=True, return_lse=True)
    expected = qkv.attention(*arrays, key_lengths=[37, 5], return_weights=True, return_lse=True)
    for got, wanted in zip((out, weights, lse), expected):
        assert type(got) is torch.Tensor
        np.testing.assert_array_equal(got.numpy(), wanted)


def test_torch_views_and_out(torch):
    q, k, v = map(torch.from_numpy, tensors(Tq=37, Dv=12))
    expected = qkv.attention(q, k, v)
    out = torch.empty(2, 37, 4, 12).transpose(1, 2)
    assert qkv.attention(q, k, v, out=out) is out
    assert torch.equal(out, expected)
    channels = [x.mT.contiguous() for x in (q, k, v)]
    assert torch.equal(qkv.attention(*channels, layout="bhdt").mT, expected)
    assert torch.equal(qkv.attention(*(x.mT for x in channels)), expected)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64"])
def test_torch_dtypes(torch, name):
    q, k, v = (torch.from_numpy(x).to(getattr(torch, name)) for x in tensors())
    out, lse = qkv.attention(q, k, v, return_lse=True)
    assert out.dtype == q.dtype
    assert lse.dtype == (torch.float64 if name == "float64" else torch.float32)
    expected, _, expected_lse = oracle.attention(*(x.double().numpy() for x in (q, k, v)))
    unit = torch.finfo(q.dtype).eps
    np.testing.assert_allclose(out.double(), expected, rtol=unit, atol=max(unit, 1e-14))
    np.testing.assert_allclose(lse, expected_lse, **CLOSE)


def test_torch_gradients_are_refused_not_dropped(torch):
    q, k, v = map(torch.from_numpy, tensors())
    q.requires_grad_()
    with pytest.raises(ValueError, match="query: expected a tensor without gradient.*requires_grad=True"):
        qkv.attention(q, k, v)
    with torch.no_grad():
        out = qkv.attention(torch.nn.Parameter(q), k, v)
    assert type(out) is torch.Tensor and not out.requires_grad


def test_torch_negative_bit(torch):
    _, k, v = map(torch.from_numpy, tensors())
    q = torch.randn(2, 4, 19, 12, dtype=torch.complex64).conj().imag
    assert q.is_neg()
    with pytest.raises(ValueError, match="query: expected .*resolve_neg.* found one with its negative bit"):
        qkv.attention(q, k, v)
    torch.testing.assert_close(qkv.attention(q.resolve_neg(), k, v), qkv.attention(q.clone(), k, v))


def test_torch_keeps_no_reference(torch):
    import sys

    q, k, v = map(torch.from_numpy, tensors())
    counts = [sys.getrefcount(x) for x in (q, k, v)]
    for _ in range(50):
        qkv.attention(q, k, v, return_lse=True)
    assert [sys.getrefcount(x) for x in (q, k, v)] == counts


def test_torch_default_device_and_pretence(torch):
    q, k, v = map(torch.from_numpy, tensors(dtype=np.float64))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), pytest.raises(Exception):
        qkv.attention(q, k, v)  # there is no memory to write to
    torch.set_default_device("meta")
    try:
        assert qkv.attention(q, k, v).device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_torch_scalars(torch):
    arrays = tensors()
    q, k, v = map(torch.from_numpy, arrays)
    out = qkv.attention(q, k, v, scale=torch.tensor(0.5), causal=True, offset=torch.tensor(18))
    np.testing.assert_array_equal(out, qkv.attention(*arrays, scale=0.5, causal=True, offset=18))


def test_jax_in_jax_out(jax):
    arrays = tensors()
    out, weights, lse = qkv.attention(*map(jax.numpy.asarray, arrays), causal="bottom_right",
                                      return_weights=True, return_lse=True)
    expected = qkv.attention(*arrays, causal="bottom_right", return_weights=True, return_lse=True)
    for got, wanted in zip((out, weights, lse), expected):
        assert isinstance(got, jax.Array)
        np.testing.assert_array_equal(np.asarray(got), wanted)


def test_jax_bfloat16(jax):
    q, k, v = (jax.numpy.asarray(x, dtype=jax.numpy.bfloat16) for x in tensors())
    out = qkv.attention(q, k, v)
    assert out.dtype == jax.numpy.bfloat16
    expected, _, _ = oracle.attention(*(np.asarray(x, np.float64) for x in (q, k, v)))
    np.testing.assert_allclose(np.asarray(out, np.float64), expected, rtol=2**-7, atol=2**-8)


def test_jax_out_cannot_be_written(jax):
    q, k, v = map(jax.numpy.asarray, tensors())
    with pytest.raises(TypeError, match="out: expected a writable array"):
        qkv.attention(q, k, v, out=jax.numpy.zeros((2, 4, 19, 20)))
