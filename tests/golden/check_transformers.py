#!/usr/bin/env python3
"""Random-weight models of both families, made with transformers, beside qkv.GPT. Run by hand:

    python tests/golden/check_transformers.py

Needs torch and transformers beside qkv. The largest difference of the logits has to be below 1e-4 for
f32 weights, and for 16-bit ones against transformers in f32 on the same, rounded, weights.
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

import qkv

GPT2 = dict(n_layer=3, n_head=4, n_embd=64, vocab_size=211, n_positions=96)
LLAMA = dict(num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, hidden_size=96, intermediate_size=160,
             vocab_size=211, max_position_embeddings=96)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)


def models():
    gpt2 = lambda **more: transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**GPT2, **more}))
    llama = lambda **more: transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **more}))
    yield "GPT-2", gpt2
    yield "GPT-2, exact GELU", lambda: gpt2(activation_function="gelu")
    yield "Llama, grouped heads", llama
    yield "Llama, tied, biases", lambda: llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True)
    yield "Llama, head_dim 32", lambda: llama(head_dim=32)
    yield "Llama 3 scaling", lambda: llama(rope_parameters=LLAMA3_ROPE)
    yield "Llama, linear scaling", lambda: llama(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0))


def main():
    bad = False
    for name, make in models():
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            torch.manual_seed(7)
            model = make().eval()
            with torch.no_grad():  # weights of a trained model's size: the defaults are too small to tell much
                for parameter in model.parameters():
                    parameter.mul_(4 if parameter.dim() > 1 else 1).copy_(parameter.to(dtype).float())
            ids = torch.randint(0, 211, (1, 90))
            with tempfile.TemporaryDirectory() as folder, torch.no_grad():
                # Before the model itself is narrowed: that would round the rope's frequencies, too.
                expected = model(ids).logits[0].numpy()
                told = model.generate(ids[:, :60], max_new_tokens=20, do_sample=False, eos_token_id=None,
                                      pad_token_id=0)[0, 60:].tolist()
                model.to(dtype).save_pretrained(folder, max_shard_size="100KB" if dtype == torch.float16 else "5GB")
                gpt = qkv.GPT(folder)
                found = gpt.logits(ids[0].tolist())
                greedy = [token.id for token in gpt.generate(ids[0, :60].tolist(), max_tokens=20, temperature=0,
                                                             stop_at_end=False)]
                parts = len(list(pathlib.Path(folder).glob("*.safetensors")))
            error = float(np.abs(found - expected).max())
            good = error < 1e-4 and greedy == told
            bad |= not good
            print(f"{'ok ' if good else 'BAD'} {name}, {dtype}, {parts} file(s): logits up to "
                  f"{np.abs(expected).max():.1f}, error {error:.1e}, greedy {'same' if greedy == told else 'differs'}")
    sys.exit(bad)


main()
