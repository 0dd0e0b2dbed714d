"""Blocks: weights found by name, forwards against NumPy and PyTorch."""

import json
import struct

import numpy as np
import pytest

import oracle
import qkv

CLOSE = dict(rtol=2e-5, atol=2e-5)


def random(*shape, seed=0):
    return (np.random.default_rng(seed + sum(shape)).normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)


def heads(x, H):
    return x.reshape(*x.shape[:2], H, -1).transpose(0, 2, 1, 3)


def expected(q, k, v, w_o, b_o, H, **options):
    out, weights, _ = oracle.attention(heads(q, H), heads(k, H), heads(v, H), **options)
    return out.transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1) @ w_o.T + b_o, weights


MHA = {
    "in_proj_weight": random(48, 16),
    "in_proj_bias": random(48),
    "out_proj.weight": random(16, 16),
    "out_proj.bias": random(16),
}
X = random(2, 9, 16, seed=1) * 4


def mha(x, memory, **options):
    w, b = MHA["in_proj_weight"], MHA["in_proj_bias"]
    q, k, v = (t @ w[i : i + 16].T + b[i : i + 16] for t, i in ((x, 0), (memory, 16), (memory, 32)))
    return expected(q, k, v, MHA["out_proj.weight"], MHA["out_proj.bias"], 4, **options)


def save_safetensors(path, tensors):
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


def test_transformer():
    block = qkv.TransformerAttention(MHA, num_heads=4)
    memory = random(2, 5, 16, seed=2)
    for inputs, options in (((X,), {}), ((X,), dict(causal="top_left")), ((X, memory), {}),
                            ((X, memory), dict(key_lengths=[3, 5]))):
        wanted, wanted_weights = mha(X, inputs[-1], **options)
        out, weights = block(*inputs, return_weights=True, **options)
        np.testing.assert_allclose(out, wanted, **CLOSE)
        np.testing.assert_allclose(weights, wanted_weights, **CLOSE)
        np.testing.assert_array_equal(block(*inputs, **options), out)


def test_out_threads_and_steps():
    block = qkv.TransformerAttention(MHA, num_heads=4)
    out = np.empty((2, 9, 16), np.float32)
    assert block(X, out=out, threads=2) is out
    steps = block.steps(X)
    np.testing.assert_array_equal(steps["output"], out)
    assert steps["weights"].shape == (2, 4, 9, 9) and steps["query"].shape == (2, 4, 9, 4)


def test_from_arrays_and_from_a_file(tmp_path):
    w, b = MHA["in_proj_weight"], MHA["in_proj_bias"]
    parts = {f"w_{n}": w[i : i + 16] for n, i in (("q", 0), ("k", 16), ("v", 32))}
    parts.update({f"b_{n}": b[i : i + 16] for n, i in (("q", 0), ("k", 16), ("v", 32))})
    wanted = qkv.TransformerAttention(MHA, 4)(X)
    arrays = qkv.TransformerAttention.from_arrays(
        **parts, w_o=MHA["out_proj.weight"], b_o=MHA["out_proj.bias"], num_heads=4)
    np.testing.assert_array_equal(arrays(X), wanted)

    path = tmp_path / "w.safetensors"
    save_safetensors(path, {**{f"layers.0.{n}": a for n, a in MHA.items()},
                            **{f"layers.1.{n}": a for n, a in MHA.items()}, "other": X})
    for given in (path, str(path)):
        block = qkv.TransformerAttention(given, num_heads=4, prefix="layers.1")
        assert repr(block) == "qkv.TransformerAttention(num_heads=4, prefix='layers.1')"
        np.testing.assert_array_equal(block(X), wanted)


def test_weights_stay_alive():
    import gc

    block = qkv.TransformerAttention({name: array.copy() for name, array in MHA.items()}, 4)
    gc.collect()
    np.testing.assert_array_equal(block(X), qkv.TransformerAttention(MHA, 4)(X))


def test_vit_and_gpt():
    named = {"qkv.weight": MHA["in_proj_weight"], "qkv.bias": MHA["in_proj_bias"],
             "proj.weight": MHA["out_proj.weight"], "proj.bias": MHA["out_proj.bias"]}
    wanted, weights = mha(X, X)
    for block in (qkv.ViTAttention({"blocks.3.attn." + n: a for n, a in named.items()}, num_heads=4),
                  qkv.ViTAttention.from_arrays(named["qkv.weight"], named["proj.weight"], num_heads=4,
                                               qkv_bias=named["qkv.bias"], proj_bias=named["proj.bias"])):
        out, got = block(X, return_weights=True)
        np.testing.assert_allclose(out, wanted, **CLOSE)
        np.testing.assert_allclose(got, weights, **CLOSE)
    gpt = qkv.GPTAttention.from_arrays(named["qkv.weight"].T, named["proj.weight"].T, num_heads=4,
                                       c_attn_bias=named["qkv.bias"], c_proj_bias=named["proj.bias"])
    np.testing.assert_allclose(gpt(X), mha(X, X, causal="top_left")[0], **CLOSE)


def conv(x, w, b=0):
    return np.einsum("oc,bchw->bohw", w[:, :, 0, 0].astype(float), x) + np.reshape(b, (-1, 1, 1))


def depthwise(x, w, b=0):
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    H, W = x.shape[2:]
    return sum(wide[:, :, i : i + H, j : j + W] * w[:, 0, i, j][:, None, None]
               for i in range(3) for j in range(3)) + np.reshape(b, (-1, 1, 1))


def conv_module(name, shape, seed):
    rng = np.random.default_rng(seed)
    channels = shape[0]
    module = {"conv.weight": rng.normal(size=shape) / np.sqrt(shape[1]), "bn.weight": rng.uniform(0.5, 2, channels),
              "bn.bias": rng.normal(size=channels), "bn.running_mean": rng.normal(size=channels),
              "bn.running_var": rng.uniform(0.5, 2, channels)}
    named = {f"{name}.{key}": array.astype(np.float32) for key, array in module.items()}
    return {**named, f"{name}.bn.num_batches_tracked": np.array(7)}


def folded(state, name, eps=1e-3):
    get = lambda part: state[f"{name}.{part}"].astype(float)  # noqa: E731
    gain = get("bn.weight") / np.sqrt(get("bn.running_var") + eps)
    return get("conv.weight") * gain[:, None, None, None], get("bn.bias") - get("bn.running_mean") * gain


def detector(state, x, H, prefix=""):
    B, C, h, w = x.shape
    d = C // H
    qkv_ = conv(x, *folded(state, prefix + "qkv")).reshape(B, H, 2 * d, h * w)
    q, k, v = qkv_[:, :, : d // 2], qkv_[:, :, d // 2 : d], qkv_[:, :, d:]
    out, weights, _ = oracle.attention(*(t.transpose(0, 1, 3, 2) for t in (q, k, v)))
    image = out.transpose(0, 1, 3, 2).reshape(B, C, h, w)
    pe = depthwise(v.reshape(B, C, h, w), *folded(state, prefix + "pe"))
    return conv(image + pe, *folded(state, prefix + "proj")), weights


def silu(x):
    return x * (1 + np.tanh(x / 2)) / 2


def psa(state, x, H, prefix=""):
    y = x + detector(state, x, H, prefix + "attn.")[0]
    hidden = silu(conv(y, *folded(state, prefix + "ffn.0")))
    return y + conv(hidden, *folded(state, prefix + "ffn.1"))


def attention_modules(prefix, c):
    return {**conv_module(prefix + "qkv", (2 * c, c, 1, 1), 1), **conv_module(prefix + "proj", (c, c, 1, 1), 2),
            **conv_module(prefix + "pe", (c, 1, 3, 3), 3)}


def psa_modules(prefix, c):
    return {**attention_modules(prefix + "attn.", c), **conv_module(prefix + "ffn.0", (2 * c, c, 1, 1), 4),
            **conv_module(prefix + "ffn.1", (c, 2 * c, 1, 1), 5)}


# Sums of up to 64 f32 terms, several layers deep, of numbers up to some ten.
DEEP = dict(rtol=1e-4, atol=1e-3)


def test_detector_psa_and_c2psa():
    c = 16
    image = np.random.default_rng(3).normal(size=(2, c, 5, 6)).astype(np.float32)
    state = attention_modules("", c)
    out, weights = qkv.DetectorAttention(state, num_heads=2)(image, return_weights=True)
    wanted, wanted_weights = detector(state, image, 2)
    np.testing.assert_allclose(out, wanted, **DEEP)
    np.testing.assert_allclose(weights, wanted_weights, **DEEP)

    state = psa_modules("m.0.", c)
    np.testing.assert_allclose(qkv.PSABlock(state, num_heads=2)(image), psa(state, image, 2, "m.0."), **DEEP)

    state = {**{f"model.10.{n}": a for n, a in {
        **conv_module("cv1", (2 * c, c, 1, 1), 6), **conv_module("cv2", (c, 2 * c, 1, 1), 7),
        **psa_modules("m.0.", c), **psa_modules("m.1.", c)}.items()}, "model.9.x": np.zeros(3, np.float32)}
    block = qkv.C2PSA(state, prefix="model.10", num_heads=2)
    both = silu(conv(image, *folded(state, "model.10.cv1")))
    a, b = both[:, :c], both[:, c:]
    for n in (0, 1):
        b = psa(state, b, 2, f"model.10.m.{n}.")
    wanted = silu(conv(np.concatenate([a, b], axis=1), *folded(state, "model.10.cv2")))
    out, weights = block(image, return_weights=True)
    np.testing.assert_allclose(out, wanted, **DEEP)
    assert [w.shape for w in weights] == [(2, 2, 30, 30)] * 2


def psa_arrays(state, prefix=""):
    arrays = {}
    for name in ("attn.qkv", "attn.proj", "attn.pe", "ffn.0", "ffn.1"):
        short = name.replace("attn.", "").replace(".", "")
        arrays[short + "_weight"], arrays[short + "_bias"] = (
            a.astype(np.float32) for a in folded(state, prefix + name))
    return arrays


def test_psa_and_c2psa_from_arrays():
    c = 16
    image = np.random.default_rng(3).normal(size=(2, c, 5, 6)).astype(np.float32)
    state = psa_modules("", c)
    block = qkv.PSABlock.from_arrays(**psa_arrays(state), num_heads=2)
    np.testing.assert_allclose(block(image), psa(state, image, 2), **DEEP)

    state = {**conv_module("cv1", (2 * c, c, 1, 1), 6), **conv_module("cv2", (c, 2 * c, 1, 1), 7),
             **psa_modules("m.0.", c), **psa_modules("m.1.", c)}
    (cv1, b1), (cv2, b2) = ([a.astype(np.float32) for a in folded(state, name)] for name in ("cv1", "cv2"))
    block = qkv.C2PSA.from_arrays(cv1, cv2, [psa_arrays(state, "m.0."), psa_arrays(state, "m.1.")],
                                  cv1_bias=b1, cv2_bias=b2, num_heads=2)
    np.testing.assert_allclose(block(image), qkv.C2PSA(state, num_heads=2)(image), **DEEP)


REFUSED = {
    "nothing there": (ValueError, lambda: qkv.ViTAttention({"a": X}, 4), r"\[qkv.ViTAttention\]"),
    "no heads": (ValueError, lambda: qkv.TransformerAttention(MHA), r"\[qkv.TransformerAttention\] .*heads"),
    "heads": (ValueError, lambda: qkv.TransformerAttention(MHA, 5), r"\[qkv.TransformerAttention\]"),
    "zero heads": (ValueError, lambda: qkv.TransformerAttention(MHA, 0), r"num_heads: expected 1 or more, found 0"),
    "weights": (TypeError, lambda: qkv.TransformerAttention([MHA], 4), r"weights: expected a dict of arrays"),
    "no file": (OSError, lambda: qkv.TransformerAttention("absent.safetensors", 4), r"absent.safetensors"),
    "kind of file": (ValueError, lambda: qkv.TransformerAttention("w.pt", 4), r"w.pt.*a .safetensors"),
    "rank": (ValueError, lambda: qkv.TransformerAttention(MHA, 4)(X[0]), r"x: expected 3 dimensions \[B, T, width\]"),
    "width": (ValueError, lambda: qkv.TransformerAttention(MHA, 4)(X[..., :8]), r"\[qkv.TransformerAttention\]"),
    "dtype": (TypeError, lambda: qkv.TransformerAttention(MHA, 4)(X.astype(int)), r"x: expected dtype f32"),
    "option": (TypeError, lambda: qkv.TransformerAttention(MHA, 4)(X, casual=True), r"casual: expected an option"),
}


@pytest.mark.parametrize("kind, call, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused(kind, call, message):
    with pytest.raises(kind, match=message):
        call()


def test_torch_module():
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 7, 16)
    with torch.no_grad():
        wanted, weights = module(x, x, x, average_attn_weights=False)
    out, got = qkv.TransformerAttention(module)(x, return_weights=True)  # its heads are known
    assert type(out) is torch.Tensor
    torch.testing.assert_close(out, wanted, **CLOSE)
    torch.testing.assert_close(got, weights, **CLOSE)
