#!/usr/bin/env python3
"""A whole ViT-B/16 of transformers with random weights, for tests/golden_test.cc to compare with.

    pip install torch==2.13.0 transformers numpy safetensors
    QKV_GOLDEN=/some/folder python3 tests/golden/make_vit_golden.py
    QKV_GOLDEN=/some/folder build/release/bin/qkv_tests --gtest_filter='Golden*'

Writes $QKV_GOLDEN/vit-b16: the model as save_pretrained leaves it, and golden.safetensors with pixels
(f32), the scores that transformers computes of them in f32, and those in f64.
"""

import copy
import os
import pathlib

import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTForImageClassification


def main() -> None:
    folder = pathlib.Path(os.environ["QKV_GOLDEN"]) / "vit-b16"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    config = ViTConfig(num_labels=1000, image_size=224, patch_size=16)
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():  # as initialised, biases are 0 and gains 1: nothing would show an error in them
        for name, value in model.named_parameters():
            if value.dim() == 1:
                value.copy_(("norm" in name and name.endswith("weight")) + 0.1 * torch.randn(value.shape))
            elif "token" in name or "position" in name:
                value.copy_(0.5 * torch.randn(value.shape))
    pixels = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        scores = model(pixels).logits
        exact = copy.deepcopy(model).double()(pixels.double()).logits
    model.save_pretrained(folder)
    save_file({"pixels": pixels, "scores": scores, "exact": exact}, folder / "golden.safetensors")
    print(f"{folder}: |scores| up to {scores.abs().max():.2f}, f32 is off by {(scores - exact).abs().max():.1e}")


if __name__ == "__main__":
    main()
