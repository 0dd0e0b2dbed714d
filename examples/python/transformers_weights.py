"""A model of transformers, fast and with its attention weights: "sdpa" gives one, "eager" the other."""

import torch
import transformers

import qkv.transformers

torch.manual_seed(0)
config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100)
model = transformers.GPT2Model(config).eval()  # or AutoModel.from_pretrained(…)

qkv.transformers.register()
model.set_attn_implementation("qkv")

tokens = torch.tensor([[5, 17, 3, 42, 8]])
with torch.no_grad():
    out = model(tokens, output_attentions=True)

for number, weights in enumerate(out.attentions):
    last = ", ".join(f"{w:.3f}" for w in weights[0, 0, -1].tolist())
    print(f"layer {number}, head 0: the last token attends to {last}")
