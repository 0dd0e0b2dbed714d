#!/usr/bin/env python3
"""Outputs of PyTorch's modules, for tests/golden_test.cc to compare the blocks with.

    pip install torch==2.13.0 numpy safetensors
    QKV_GOLDEN=/some/folder python3 tests/golden/make_torch_goldens.py
    QKV_GOLDEN=/some/folder build/release/bin/qkv_tests --gtest_filter='Golden*'

Inputs and weights are random numbers that f32 holds exactly, and are stored in f32; PyTorch computes
in f64, and its outputs are stored in f64. nn.MultiheadAttention, LayerNorm, BatchNorm2d, Conv2d and
Linear are PyTorch's own. The blocks of timm, Ultralytics and GPT-2 are written here from their
formulas.
"""

import os
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

EXPECTED_TORCH = "2.13.0"


def randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Every parameter and running statistic becomes a random number of a sensible size."""
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if not value.is_floating_point():
                continue
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            if name.endswith("running_var"):
                noise = 0.5 + 0.3 * noise.square()
            elif value.dim() == 1:
                is_gain = name.endswith("weight")
                noise = (1 if is_gain else 0) + 0.3 * noise
            else:
                fan_in = value[0].numel()
                gain = 0.8 if value.dim() == 4 else 1.3  # BatchNorm adds to the former
                noise = noise * gain / fan_in**0.5
            value.copy_(noise.float().double())


def tokens(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).float().double()


class VitAttention(nn.Module):
    """timm's: one Linear for q, k and v, optional norms of q and k, a projection."""

    def __init__(self, dim: int, heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.q_norm = nn.LayerNorm(dim // heads, eps=1e-6) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(dim // heads, eps=1e-6) if qk_norm else nn.Identity()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, dim = x.shape
        split = self.qkv(x).reshape(b, n, 3, self.heads, dim // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.proj(out.transpose(1, 2).reshape(b, n, dim))


class GptAttention(nn.Module):
    """GPT-2's, with weights (in, out) as its Conv1D has them."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn_weight = nn.Parameter(torch.empty(dim, 3 * dim))
        self.c_attn_bias = nn.Parameter(torch.empty(3 * dim))
        self.c_proj_weight = nn.Parameter(torch.empty(dim, dim))
        self.c_proj_bias = nn.Parameter(torch.empty(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, dim = x.shape
        q, k, v = (x @ self.c_attn_weight + self.c_attn_bias).split(dim, dim=2)
        q, k, v = (m.view(b, t, self.heads, -1).transpose(1, 2) for m in (q, k, v))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        out = (weights @ v).transpose(1, 2).reshape(b, t, dim)
        return out @ self.c_proj_weight + self.c_proj_bias


class ConvNorm(nn.Module):
    """A convolution without bias, BatchNorm (eps 1e-3), and SiLU or nothing."""

    def __init__(self, c_in: int, c_out: int, k: int = 1, groups: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, k, padding=k // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(c_out, eps=1e-3)
        self.act = nn.SiLU() if act else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn(self.conv(x)))


class DetectorAttention(nn.Module):
    def __init__(self, dim: int, heads: int, attn_ratio: float = 0.5) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = dim // heads
        self.key_dim = int(self.head_dim * attn_ratio)
        self.qkv = ConvNorm(dim, dim + 2 * heads * self.key_dim, act=False)
        self.proj = ConvNorm(dim, dim, act=False)
        self.pe = ConvNorm(dim, dim, 3, groups=dim, act=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        widths = [self.key_dim, self.key_dim, self.head_dim]
        q, k, v = self.qkv(x).view(b, self.heads, sum(widths), h * w).split(widths, dim=2)
        weights = (q.transpose(-2, -1) @ k * self.key_dim**-0.5).softmax(-1)
        mixed = (v @ weights.transpose(-2, -1)).view(b, c, h, w)
        return self.proj(mixed + self.pe(v.reshape(b, c, h, w)))


class PsaBlock(nn.Module):
    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.attn = DetectorAttention(c, heads)
        self.ffn = nn.Sequential(ConvNorm(c, 2 * c), ConvNorm(2 * c, c, act=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(x)
        return x + self.ffn(x)


class C2psa(nn.Module):
    def __init__(self, c1: int, n: int) -> None:
        super().__init__()
        self.c = int(c1 * 0.5)
        self.cv1 = ConvNorm(c1, 2 * self.c)
        self.cv2 = ConvNorm(2 * self.c, c1)
        self.m = nn.Sequential(*(PsaBlock(self.c, max(self.c // 64, 1)) for _ in range(n)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.cv1(x).split(self.c, dim=1)
        return self.cv2(torch.cat((a, self.m(b)), dim=1))


def save(folder: pathlib.Path, name: str, inputs: dict, outputs: dict, module: nn.Module) -> None:
    weights = {k: v for k, v in module.state_dict().items() if v.is_floating_point()}
    stored = {k: v.detach().float().contiguous() for k, v in {**inputs, **weights}.items()}
    stored |= {k: v.detach().double().contiguous() for k, v in outputs.items()}
    save_file(stored, folder / f"{name}.safetensors", metadata={"torch": torch.__version__})
    shapes = ", ".join(f"{k} {list(v.shape)}" for k, v in {**inputs, **outputs}.items())
    print(f"{name}: {shapes}")


def make_simple(folder: pathlib.Path, name: str, seed: int, module: nn.Module, *shape: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    randomise(module, generator)
    x = tokens(*shape, generator=generator)
    save(folder, name, {"x": x}, {"out": module(x)}, module)


def make_multihead(folder: pathlib.Path, name: str, seed: int, cross: bool, widths: dict) -> None:
    generator = torch.Generator().manual_seed(seed)
    module = nn.MultiheadAttention(512, 8, batch_first=True, **widths).double().eval()
    randomise(module, generator)
    x = tokens(32, 20, 512, generator=generator)
    key = tokens(32, 33, widths.get("kdim", 512), generator=generator) if cross else x
    value = tokens(32, 33, widths["vdim"], generator=generator) if widths else key
    out, weights = module(x, key, value, average_attn_weights=False)
    inputs = {"x": x}
    if cross:
        inputs["key"] = key
    if widths:
        inputs["value"] = value
    save(folder, name, inputs, {"out": out, "weights": weights}, module)


def main() -> int:
    folder = os.environ.get("QKV_GOLDEN")
    if not folder:
        print("set QKV_GOLDEN to the folder to write to", file=sys.stderr)
        return 2
    if torch.__version__.split("+")[0] != EXPECTED_TORCH:
        print(f"note: written for torch {EXPECTED_TORCH}, this is {torch.__version__}")
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        make_multihead(path, "mha_self", 1, cross=False, widths={})
        make_multihead(path, "mha_cross", 2, cross=True, widths={})
        make_multihead(path, "mha_kdim_vdim", 3, cross=True, widths={"kdim": 96, "vdim": 160})
        make_simple(path, "vit", 4, VitAttention(768, 12, qk_norm=False), 1, 197, 768)
        make_simple(path, "vit_qk_norm", 5, VitAttention(768, 12, qk_norm=True), 1, 197, 768)
        make_simple(path, "gpt2", 6, GptAttention(768, 12), 1, 256, 768)
        make_simple(path, "detector", 7, DetectorAttention(128, 2), 2, 128, 20, 20)
        make_simple(path, "psa_block", 8, PsaBlock(128, 2), 2, 128, 20, 20)
        make_simple(path, "c2psa", 9, C2psa(256, n=1), 1, 256, 20, 20)
        make_simple(path, "c2psa_two_blocks", 10, C2psa(128, n=2), 2, 128, 9, 13)
    return 0


if __name__ == "__main__":
    sys.exit(main())
