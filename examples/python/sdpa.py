"""PyTorch's attention, one line away: a module that is not ours, with its SDPA calls routed here."""

import torch

import qkv.torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(d_model=64, nhead=4, batch_first=True).eval()
x = torch.randn(2, 10, 64)

with torch.no_grad():
    theirs = layer(x)
    with qkv.torch.use():
        ours = layer(x)

print(f"largest difference: {(ours - theirs).abs().max():.0e}")
assert torch.allclose(ours, theirs, atol=1e-5)

# And the weights that the fused call hides.
attention = qkv.torch.MultiheadAttention(64, 4, batch_first=True).eval()
attention.load_state_dict(layer.self_attn.state_dict())
with torch.no_grad():
    _, weights = attention(x, x, x)
print(f"each row of the weights adds up to 1: {bool(torch.allclose(weights.sum(-1), torch.ones(2, 10)))}")
