"""Every option of qkv.attention against f64 NumPy."""

import numpy as np
import pytest

import oracle
import qkv

# f32 sums of at most 37 terms of numbers around 1 to 4, twice, and an exp: 1e-5 is some hundred
# rounding units, and a wrong key or weight is off by 1e-2 and more.
CLOSE = dict(rtol=1e-5, atol=1e-5)


def tensors(B=2, Hq=4, Hkv=2, Tq=19, Tk=37, D=12, Dv=20, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (B, Hq, Tq, D), (B, Hkv, Tk, D), (B, Hkv, Tk, Dv)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def check(q, k, v, **options):
    out, weights, lse = qkv.attention(q, k, v, return_weights=True, return_lse=True, **options)
    expected = oracle.attention(q, k, v, **options)
    for got, wanted in zip((out, weights, lse), expected):
        assert got.dtype == q.dtype
        np.testing.assert_allclose(got, wanted, **CLOSE)
    return out, weights, lse


RNG = np.random.default_rng(1)
HOLES = np.where(RNG.random((2, 4, 19, 37)) < 0.2, -np.inf, RNG.normal(size=(2, 4, 19, 37)))

OPTIONS = {
    "plain": {},
    "scale": dict(scale=0.7),
    "scale zero": dict(scale=0),
    "scale negative": dict(scale=-0.3),
    "softcap": dict(softcap=1.5),
    "causal top_left": dict(causal="top_left"),
    "causal bottom_right": dict(causal="bottom_right"),
    "causal with offset": dict(causal=True, offset=7),
    "causal with offsets": dict(causal=True, offset=np.array([3, 30])),
    "causal with a list of offsets": dict(causal=True, offset=[-4, 9]),
    "causal None": dict(causal=None),
    "window": dict(window=(3, 2)),
    "window left": dict(window=(5, -1), offset=18),
    "window and causal": dict(causal="bottom_right", window=(8, -1)),
    "prefix": dict(causal="top_left", prefix=[5, 30]),
    "key_lengths": dict(key_lengths=np.array([37, 11], np.int32)),
    "no keys": dict(key_lengths=[0, 37]),
    "mask": dict(mask=RNG.random((2, 4, 19, 37)) < 0.6),
    "mask broadcast": dict(mask=RNG.random((2, 1, 1, 37)) < 0.6),
    "mask of keys": dict(mask=RNG.random(37) < 0.6),
    "bias": dict(bias=RNG.normal(size=(4, 19, 37)).astype(np.float32)),
    "bias hides": dict(bias=HOLES.astype(np.float32)),
    "alibi": dict(alibi=np.array([0.5, 0.25, 0.125, 0.0625], np.float32)),
    "alibi list": dict(alibi=[0.5, 0.25, 0.125, 0.0625], offset=18, causal=True),
    "sinks": dict(sinks=np.array([0.3, -1, 2, -np.inf], np.float32)),
    "sinks list": dict(sinks=[0.3, -1, 2, 0], key_lengths=[0, 3]),
    "everything": dict(
        causal="bottom_right",
        window=(9, 3),
        prefix=[2, 0],
        key_lengths=[30, 37],
        mask=RNG.random((19, 37)) < 0.8,
        bias=HOLES.astype(np.float32),
        alibi=[0.1, 0.2, 0.3, 0.4],
        sinks=[0, 1, -1, 0.5],
        softcap=3.0,
        scale=0.4,
    ),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_option(options):
    check(*tensors(), **options)


def test_f64_is_exact_to_its_own_rounding():
    q, k, v = tensors(dtype=np.float64)
    out, lse = qkv.attention(q, k, v, return_lse=True)
    expected, _, expected_lse = oracle.attention(q, k, v)
    assert out.dtype == lse.dtype == np.float64
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-13)


def test_f16_returns_f16_and_an_f32_lse():
    q, k, v = tensors(dtype=np.float16)
    out, weights, lse = qkv.attention(q, k, v, return_weights=True, return_lse=True)
    assert (out.dtype, weights.dtype, lse.dtype) == (np.float16, np.float16, np.float32)
    expected, expected_weights, expected_lse = oracle.attention(q, k, v)
    np.testing.assert_allclose(out, expected, rtol=2**-10, atol=2**-11)
    np.testing.assert_allclose(weights, expected_weights, rtol=2**-10, atol=2**-14)
    np.testing.assert_allclose(lse, expected_lse, **CLOSE)


def test_causal_true_on_a_square():
    q, k, v = tensors(Tq=23, Tk=23)
    check(q, k, v, causal=True)
    np.testing.assert_array_equal(
        qkv.attention(q, k, v, causal=False), qkv.attention(q, k, v, causal=None))


def test_packed_batch():
    q, k, v = tensors(B=1)
    query_starts, key_starts = [0, 4, 4, 19], np.array([0, 20, 25, 37], np.int32)
    out, lse = qkv.attention(q, k, v, query_starts=query_starts, key_starts=key_starts,
                             causal="bottom_right", key_lengths=[20, 2, 9], return_lse=True)
    expected, expected_lse = oracle.packed(q, k, v, query_starts, key_starts,
                                           {"key_lengths": [20, 2, 9]}, causal="bottom_right")
    np.testing.assert_allclose(out, expected, **CLOSE)
    np.testing.assert_allclose(lse, expected_lse, **CLOSE)


@pytest.mark.parametrize("kind", ["list", "tuple", "array", "empty"])
def test_weights_of_chosen_rows(kind):
    q, k, v = tensors()
    rows = [] if kind == "empty" else [(0, 0, 0), (1, 3, 18), (0, 2, 5), (1, 3, 18)]
    given = {"tuple": tuple(rows), "array": np.array(rows, np.int32)}.get(kind, rows)
    out, chosen = qkv.attention(q, k, v, causal="bottom_right", return_weights=given)
    plain, weights = qkv.attention(q, k, v, causal="bottom_right", return_weights=True)
    np.testing.assert_array_equal(out, plain)
    assert chosen.shape == (len(rows), 37)
    for row, index in zip(chosen, rows):
        np.testing.assert_array_equal(row, weights[index])


def test_what_is_returned():
    q, k, v = tensors()
    assert isinstance(qkv.attention(q, k, v), np.ndarray)
    out, weights = qkv.attention(q, k, v, return_weights=True)
    assert (out.shape, weights.shape) == ((2, 4, 19, 20), (2, 4, 19, 37))
    out, lse = qkv.attention(q, k, v, return_lse=True)
    assert lse.shape == (2, 4, 19)
    assert len(qkv.attention(q, k, v, return_weights=True, return_lse=True)) == 3


@pytest.mark.parametrize("layout, axes", [("bthd", (0, 2, 1, 3)), ("bhdt", (0, 1, 3, 2))])
def test_layouts(layout, axes):
    q, k, v = tensors()
    expected = qkv.attention(q, k, v, causal="bottom_right")
    dense = [np.ascontiguousarray(x.transpose(axes)) for x in (q, k, v)]
    out, weights = qkv.attention(*dense, causal="bottom_right", layout=layout, return_weights=True)
    assert out.flags.c_contiguous and weights.shape == (2, 4, 19, 37)
    np.testing.assert_array_equal(out.transpose(axes), expected)


def test_empty_dimensions():
    q, k, v = tensors()
    out, lse = qkv.attention(q, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert not out.any() and np.isneginf(lse).all()
    assert qkv.attention(q[:0], k[:0], v[:0]).shape == (0, 4, 19, 20)
    assert qkv.attention(q[:, :, :0], k, v).shape == (2, 4, 0, 20)


def test_threads_change_no_bit():
    q, k, v = tensors()
    one = qkv.attention(q, k, v, threads=1)
    np.testing.assert_array_equal(one, qkv.attention(q, k, v, threads=3))
    before = qkv.num_threads()
    qkv.set_num_threads(2)
    assert qkv.num_threads() == 2
    np.testing.assert_array_equal(one, qkv.attention(q, k, v))
    qkv.set_num_threads(None)
    assert qkv.num_threads() == before
