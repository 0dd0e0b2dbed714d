"""What is borrowed from arrays, and what is refused."""

import threading

import numpy as np
import pytest

import qkv
from test_attention import tensors


def test_strided_views_are_taken_as_they_are():
    packed = np.random.default_rng(0).normal(size=(2, 17, 3, 4, 8)).astype(np.float32)
    q, k, v = packed.transpose(2, 0, 3, 1, 4)  # [B, H, T, D] each, strided
    expected = qkv.attention(*(np.ascontiguousarray(x) for x in (q, k, v)))
    np.testing.assert_array_equal(qkv.attention(q, k, v), expected)
    np.testing.assert_array_equal(
        qkv.attention(*packed.transpose(2, 0, 1, 3, 4), layout="bthd").transpose(0, 2, 1, 3), expected)
    reverse = qkv.attention(q, k[:, :, ::-1], v[:, :, ::-1])  # negative strides
    np.testing.assert_allclose(reverse, expected, rtol=1e-5, atol=1e-6)


def test_broadcast_views():
    q, k, v = tensors(B=1)
    wide = qkv.attention(*(np.broadcast_to(x, (3, *x.shape[1:])) for x in (q, k, v)))
    np.testing.assert_array_equal(wide, np.repeat(qkv.attention(q, k, v), 3, axis=0))


def test_nothing_is_copied():
    """Keys that a copy would need a terabyte for; three of them exist, by their length."""
    one = np.ones((1, 1, 1, 1), np.float32)
    q, k, v = (np.broadcast_to(one, (1, 1, *shape)) for shape in ((1, 1 << 18), (1 << 20, 1 << 18), (1 << 20, 2)))
    assert k.nbytes == 1 << 40
    out, lse = qkv.attention(q, k, v, key_lengths=[3], scale=2.0**-18, return_lse=True)
    assert out.tolist() == [[[[1, 1]]]]
    np.testing.assert_allclose(lse, 1 + np.log(3), rtol=1e-6)


def test_read_only_inputs():
    arrays = tensors()
    expected = qkv.attention(*arrays)
    for array in arrays:
        array.flags.writeable = False
    np.testing.assert_array_equal(qkv.attention(*arrays), expected)
    borrowed = np.frombuffer(arrays[0].tobytes(), np.float32).reshape(arrays[0].shape)
    np.testing.assert_array_equal(qkv.attention(borrowed, *arrays[1:]), expected)


def test_inputs_are_not_written():
    arrays = tensors()
    copies = [array.copy() for array in arrays]
    qkv.attention(*arrays, return_weights=True, return_lse=True)
    for array, copy in zip(arrays, copies):
        np.testing.assert_array_equal(array, copy)


def test_out_is_written_in_place_and_returned():
    q, k, v = tensors()
    expected = qkv.attention(q, k, v)
    out = np.full_like(expected, np.nan)
    assert qkv.attention(q, k, v, out=out) is out
    np.testing.assert_array_equal(out, expected)
    wide = np.full((2, 19, 4, 40), np.nan, np.float32)  # strided, in another order
    view = wide.transpose(0, 2, 1, 3)[..., 10:30]
    result, lse = qkv.attention(q, k, v, out=view, return_lse=True)
    assert result is view
    np.testing.assert_array_equal(view, expected)
    assert np.isnan(wide[..., :10]).all() and np.isnan(wide[..., 30:]).all()


def test_out_may_be_wider():
    q, k, v = tensors(dtype=np.float16)
    out = np.empty((2, 4, 19, 20), np.float32)
    qkv.attention(q, k, v, out=out)
    np.testing.assert_array_equal(out.astype(np.float16), qkv.attention(q, k, v))


def test_a_buffer_that_is_no_array():
    q, k, v = tensors()
    np.testing.assert_array_equal(
        qkv.attention(memoryview(q), memoryview(k), memoryview(v)), qkv.attention(q, k, v))


def test_unaligned_arrays():
    q, k, v = tensors()
    raw = np.empty(q.nbytes + 1, np.uint8)
    shifted = np.ndarray(q.shape, np.float32, raw.data, 1)
    shifted[...] = q
    np.testing.assert_array_equal(qkv.attention(shifted, k, v), qkv.attention(q, k, v))


def test_calls_from_several_threads():
    q, k, v = tensors()
    expected = qkv.attention(q, k, v)
    results = [None] * 8

    def work(i):
        for _ in range(5):
            results[i] = qkv.attention(q, k, v, threads=1 + i % 2)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_no_reference_is_kept():
    import sys

    arrays = tensors()
    lengths = np.array([3, 30])
    counts = [sys.getrefcount(x) for x in (*arrays, lengths)]
    for _ in range(50):
        qkv.attention(*arrays, key_lengths=lengths, return_weights=[(0, 0, 0)], return_lse=True)
    assert [sys.getrefcount(x) for x in (*arrays, lengths)] == counts


Q, K, V = tensors()
READ_ONLY = np.zeros((2, 4, 19, 20), np.float32)
READ_ONLY.flags.writeable = False

REFUSED = {
    "rank": (ValueError, dict(query=Q[0]), r"query: expected 4 dimensions \[B, H, T, D\], found shape \[4, 19, 12\]"),
    "rank in layout": (ValueError, dict(query=Q[0], layout="bthd"), r"query: expected 4 dimensions \[B, T, H, D\]"),
    "width": (ValueError, dict(key=K[..., :5]), r"key: expected shape \[2, Hkv, Tk, 12\].*found \[2, 2, 37, 5\]"),
    "order is said": (ValueError, dict(layout="bthd"), r"key: .*in the order \[B, H, T, D\]; the layout is \[B, T, H, D\]"),
    "no array": (TypeError, dict(query="query"), r"query: expected an array .* found str"),
    "None": (TypeError, dict(key=None), r"key: expected an array, found None"),
    "list": (TypeError, dict(value=V.tolist()), r"value: expected an array .* found list"),
    "dtype": (TypeError, dict(query=Q.astype(np.int16)), r"query: expected dtype .*, found int16"),
    "integers": (TypeError, dict(query=Q.astype(np.int32)), r"query: expected dtype f32, f64, f16 or bf16, found i32"),
    "two dtypes": (TypeError, dict(key=K.astype(np.float64)), r"key: expected dtype f32, found f64"),
    "objects": (TypeError, dict(query=Q.astype(object)), r"query: expected an array .* found ndarray of dtype object"),
    "byte order": (TypeError, dict(query=Q.astype(">f4")), r"query: expected an array .* dtype >f4"),
    "mask dtype": (TypeError, dict(mask=np.ones(37, np.uint8)), r"mask: expected dtype bool, found u8"),
    "mask shape": (ValueError, dict(mask=np.ones(36, bool)), r"mask: expected a shape that broadcasts"),
    "bias dtype": (TypeError, dict(bias=np.zeros(37)), r"bias: expected dtype f32, found f64"),
    "causal": (ValueError, dict(causal=True), r"causal: expected .*top_left.*bottom_right.*found Tq = 19 and Tk = 37"),
    "causal word": (ValueError, dict(causal="left"), r'causal: expected "top_left" or "bottom_right", found \'left\''),
    "causal number": (TypeError, dict(causal=1), r'causal: expected None, True, "top_left" or "bottom_right", found 1'),
    "offset bool": (TypeError, dict(offset=True), r"offset: expected an integer, found True"),
    "offset float": (TypeError, dict(offset=1.5), r"offset: expected .*, found (1.5|float)"),
    "offset twice": (ValueError, dict(offset=1, causal="top_left"), r"offset: expected either an offset or"),
    "offset shape": (ValueError, dict(offset=[1, 2, 3]), r"offset: expected shape \[B\] \[2\], found \[3\]"),
    "offset huge": (ValueError, dict(offset=1 << 70), r"offset: expected an integer of 64 bits"),
    "offset entry": (TypeError, dict(offset=[1, "2"]), r"offset\[1\]: expected an integer, found '2'"),
    "window": (ValueError, dict(window=(-2, 0)), r"window\[0\]: expected -1 \(unbounded\) or more, found -2"),
    "window number": (TypeError, dict(window=4), r"window: expected \(left, right\)"),
    "scale": (ValueError, dict(scale=float("nan")), r"scale: expected a finite number, found nan"),
    "scale word": (TypeError, dict(scale="1"), r"scale: expected a number, found '1'"),
    "softcap": (ValueError, dict(softcap=0), r"softcap: expected a finite number above 0"),
    "alibi": (ValueError, dict(alibi=[1, 2]), r"alibi: expected shape \[Hq\] \[4\], found \[2\]"),
    "sinks": (TypeError, dict(sinks=np.zeros(4, np.int64)), r"sinks: expected"),
    "key_lengths": (ValueError, dict(key_lengths=[1, 38]), r"key_lengths\[1\]: expected a length in \[0, 37\], found 38"),
    "starts": (ValueError, dict(query_starts=[0, 19]), r"key_starts: expected query_starts and key_starts together"),
    "layout": (ValueError, dict(layout="tbhd"), r'layout: expected "bhtd", "bthd" or "bhdt", found \'tbhd\''),
    "out read-only": (TypeError, dict(out=READ_ONLY), r"out: expected a writable array"),
    "out shape": (ValueError, dict(out=np.empty((2, 4, 19, 21), np.float32)), r"out: expected shape"),
    "out overlaps": (ValueError, dict(value=Q, key=Q, out=Q), r"out"),
    "rows": (ValueError, dict(return_weights=[(0, 4, 0)]), r"return_weights\[0, 1\]: expected .* found 4"),
    "row of two": (TypeError, dict(return_weights=[(0, 4)]), r"return_weights\[0\]: expected \(batch, head, query\)"),
    "rows shape": (ValueError, dict(return_weights=np.zeros((2, 2), np.int64)), r"return_weights: expected shape \[n, 3\]"),
    "return_lse": (TypeError, dict(return_lse=1), r"return_lse: expected True or False, found 1"),
    "threads": (ValueError, dict(threads=0), r"threads: expected None, or 1 or more, found 0"),
}


@pytest.mark.parametrize("kind, arguments, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused(kind, arguments, message):
    with pytest.raises(kind, match=message) as error:
        qkv.attention(**{**dict(query=Q, key=K, value=V), **arguments})
    assert str(error.value).startswith("[qkv.attention] ")


def test_a_refused_call_writes_nothing():
    out = np.full((2, 4, 19, 20), 7, np.float32)
    with pytest.raises(ValueError):
        qkv.attention(Q, K, V, key_lengths=[1, 38], out=out)
    assert (out == 7).all()


def test_masked_elements_are_refused_not_read():
    hidden = np.ma.array(Q, mask=np.zeros(Q.shape, bool))
    np.testing.assert_array_equal(qkv.attention(hidden, K, V), qkv.attention(Q, K, V))
    np.testing.assert_array_equal(qkv.attention(np.ma.array(Q), K, V), qkv.attention(Q, K, V))
    hidden[0, 0, 0, 0] = np.ma.masked
    for arguments in (dict(query=hidden), dict(bias=hidden[..., :1]), dict(out=np.ma.masked_array(np.empty(
            (*Q.shape[:3], V.shape[3]), np.float32), True))):
        with pytest.raises(TypeError, match="expected an array all of whose elements count .*, found a MaskedArray"):
            qkv.attention(**{**dict(query=Q, key=K, value=V), **arguments})
    with pytest.raises(TypeError, match="query: expected dtype f32, f64, f16 or bf16, found complex64"):
        qkv.attention(Q.astype(np.complex64), K, V)
