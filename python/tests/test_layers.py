"""Encoder layers and whole vision transformers, beside those of PyTorch and transformers."""

import numpy as np
import pytest

import qkv


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_of_pytorch(norm_first):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first).eval()
    x = torch.randn(2, 9, 32)
    with torch.no_grad():
        wanted = theirs(x)
        for layer in (qkv.EncoderLayer(theirs),
                      qkv.EncoderLayer(theirs.state_dict(), 4, norm_first=norm_first)):
            torch.testing.assert_close(layer(x), wanted, rtol=0, atol=1e-5)
        hidden = torch.nn.Transformer.generate_square_subsequent_mask(9)
        torch.testing.assert_close(qkv.EncoderLayer(theirs)(x, causal=True), theirs(x, hidden), rtol=0, atol=1e-5)


@pytest.mark.parametrize("storage, off", [("f32", 0), ("bf16", 0.01), ("f16", 0.001), ("int8", 0.03)])
def test_encoder_layer_stored_narrow(storage, off):
    random = np.random.default_rng(0)
    shapes = {"attn.qkv": (192, 64), "attn.proj": (64, 64), "mlp.fc1": (256, 64), "mlp.fc2": (64, 256)}
    weights = {f"{name}.weight": (random.normal(size=s) / s[1] ** 0.5).astype(np.float32) for name, s in shapes.items()}
    weights.update({f"norm{n}.weight": np.ones(64, np.float32) for n in (1, 2)})
    x = random.normal(size=(2, 20, 64)).astype(np.float32)
    exact = qkv.EncoderLayer(weights, 4)(x)
    error = np.linalg.norm(qkv.EncoderLayer(weights, 4, storage=storage)(x) - exact) / np.linalg.norm(exact)
    assert (error > 0) == (off > 0) and error <= off
    with pytest.raises(ValueError, match='qkv.EncoderLayer.* storage: expected "f32", .* or "int8", found .*int4'):
        qkv.EncoderLayer(weights, 4, storage="int4")


def test_encoder_layer_refuses():
    weights = {"self_attn.in_proj_weight": np.ones((24, 8)), "self_attn.out_proj.weight": np.ones((8, 8)),
               "linear1.weight": np.ones((16, 8)), "linear2.weight": np.ones((8, 16))}
    with pytest.raises(ValueError, match="activation: expected relu, gelu, .* found tanh"):
        qkv.EncoderLayer(weights, 2, activation="tanh")
    with pytest.raises(ValueError, match="weights: expected .*attn.qkv.weight or .*, found none with that prefix"):
        qkv.EncoderLayer(weights, 2, prefix="blocks.0.")
    with pytest.raises(TypeError, match="weights: expected a dict of arrays or a module, found list"):
        qkv.EncoderLayer([1], 2)
    layer = qkv.EncoderLayer(weights, 2)
    with pytest.raises(ValueError, match="qkv.EncoderLayer.* x"):
        layer(np.ones((1, 3, 9), np.float32))


def test_vision_transformer_of_transformers(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                    image_size=32, patch_size=8, num_labels=5)
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = qkv.ViT(tmp_path)
    assert ours.image_shape == (3, 32, 32) and len(ours.labels) in (0, 5)
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        wanted = theirs(pixels).logits
    torch.testing.assert_close(ours(pixels), wanted, rtol=0, atol=1e-5)
    out = np.empty((2, 5), np.float32)
    assert ours(pixels.numpy(), out=out) is out
    np.testing.assert_allclose(out, wanted.numpy(), rtol=0, atol=1e-5)


def test_vision_transformer_refuses(tmp_path):
    with pytest.raises(OSError):
        qkv.ViT(tmp_path / "nothing")
    with pytest.raises(ValueError, match='qkv.ViT.* storage: expected "f32", .* or "int8", found'):
        qkv.ViT(tmp_path / "nothing", storage="int4")


def test_plan_of_a_block():
    weights = {"qkv.weight": np.ones((96, 32)), "proj.weight": np.ones((32, 32))}
    text = qkv.ViTAttention(weights, 4).plan((2, 10, 32))
    assert "attention" in text
    with pytest.raises(ValueError, match="ViTAttention"):
        qkv.ViTAttention(weights, 4).plan((2, 10, 31))
