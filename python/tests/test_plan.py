"""qkv.plan."""

import numpy as np
import pytest

import qkv

SHAPE = (2, 8, 256, 64)


def test_shapes_and_arrays_agree():
    q = np.broadcast_to(np.float32(0), SHAPE)
    of_shapes, of_arrays = (qkv.plan(x, x, x, causal=True, threads=2) for x in (SHAPE, q))
    assert of_shapes == of_arrays
    assert of_shapes.visible == 2 * 8 * 256 * 257 // 2
    assert of_shapes.flops == 2 * of_shapes.visible * 128
    assert of_shapes.threads <= 2 and of_shapes.kernel in str(of_shapes)


def test_options_and_targets():
    assert qkv.plan(SHAPE, SHAPE, SHAPE, key_lengths=[0, 3]).visible == 8 * 256 * 3
    assert qkv.plan(SHAPE, SHAPE, SHAPE, target="scalar").target == "scalar"
    assert qkv.plan(SHAPE, SHAPE, SHAPE, dtype="f64").accumulate == "f64"
    with pytest.raises(AttributeError):
        qkv.plan(SHAPE, SHAPE, SHAPE).kernel = "other"


REFUSED = {
    "rank": (ValueError, dict(query=(1, 2, 3)), r"query: expected 4 dimensions \[B, H, T, D\], found shape \[1, 2, 3\]"),
    "key": (ValueError, dict(key=(2, 8, 256, 32)), r"key: expected shape \[2, 8, 256, 64\], found \[2, 8, 256, 32\]"),
    "value": (ValueError, dict(value=(2, 8, 255, 64)), r"value: expected shape"),
    "dtype": (ValueError, dict(dtype="f8"), r'dtype: expected "f32", "f64", "f16" or "bf16", found \'f8\''),
    "target": (ValueError, dict(target="mmx"), r"target: expected "),
    "option": (TypeError, dict(casual=True), r"casual: expected an option of qkv.attention"),
    "other option": (TypeError, dict(return_weights=True), r"return_weights: expected an option of the scores \(mask, bias, .*\), found one that is not taken here"),
    "softcap": (ValueError, dict(softcap=-1), r"softcap: expected"),
}


@pytest.mark.parametrize("kind, arguments, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused(kind, arguments, message):
    with pytest.raises(kind, match=message) as error:
        qkv.plan(**{**dict(query=SHAPE, key=SHAPE, value=SHAPE), **arguments})
    assert str(error.value).startswith("[qkv.plan] ")
