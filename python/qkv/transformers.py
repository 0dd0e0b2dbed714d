"""Models of Hugging Face's transformers on this engine.

>>> import torch, transformers, qkv.transformers
>>> qkv.transformers.register()
>>> config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100)
>>> model = transformers.GPT2Model(config).eval()
>>> model.set_attn_implementation("qkv")
>>> with torch.no_grad():
...     out = model(torch.arange(10)[None], output_attentions=True)
>>> len(out.attentions), out.attentions[0].shape
(2, torch.Size([1, 4, 10, 10]))

For inference: while gradients are enabled, a model whose parameters require them is refused.
"""

from __future__ import annotations

from typing import Optional

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from .torch import _attend, _autocast, _refuse_gradient, _refuse_tangent

try:  # where calls with output_attentions=True leave their wish
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # before it, the wish was an argument
    _active_collector = None

__all__ = ["attention_forward", "register"]


def register(name: str = "qkv") -> None:
    """Puts `name` into transformers' attention interface.

    Then `model.set_attn_implementation("qkv")`, or `attn_implementation="qkv"` when a model is
    loaded, runs its attention here: with its masks, its scaling, softcap, sliding window, sinks and
    grouped heads, and with `output_attentions=True` in a call, which "sdpa" does not give.

    Examples
    --------
    >>> import torch, transformers, qkv.transformers
    >>> qkv.transformers.register()
    >>> "qkv" in transformers.AttentionInterface()
    True
    """
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)


def _refuse(subject, expected, found):
    raise ValueError(f"[qkv.transformers] {subject}: expected {expected}, found {found}")


def _wants_weights(module, output_attentions):
    if output_attentions is not None:
        return bool(output_attentions)
    collected = None if _active_collector is None else _active_collector.get()
    if collected is not None:
        return any("attentions" in name for name in collected)
    return bool(getattr(getattr(module, "config", None), "output_attentions", False))


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    is_causal: Optional[bool] = None,
    softcap: Optional[float] = None,
    s_aux: Optional[torch.Tensor] = None,
    position_bias: Optional[torch.Tensor] = None,
    output_attentions: Optional[bool] = None,
    cache=None,
    **kwargs,
):
    """What transformers calls: query [B, Hq, Tq, D], key [B, Hkv, Tk, D], value [B, Hkv, Tk, Dv].

    Returns out [B, Tq, Hq, Dv] and the weights [B, Hq, Tq, Tk], or None if nobody asked for them.
    A sliding window is part of the mask that transformers makes.
    """
    if dropout != 0:
        _refuse("dropout", "0, or a model in eval(): there is no dropout here", dropout)
    if cache is not None:
        _refuse("cache", "None: paged caches are not read here", type(cache).__name__)
    if torch.is_grad_enabled():
        _refuse_gradient("attention", query=query, key=key, value=value, bias=position_bias,
                         sinks=s_aux)
    _refuse_tangent("attention", query=query, key=key, value=value, bias=position_bias, sinks=s_aux)
    query, key, value = _autocast(query, key, value)
    # Without a mask, a decoder is causal from its first key on; a single query sees all.
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = query.shape[2] > 1 and attention_mask is None and is_causal

    mask, bias = None, position_bias
    if attention_mask is not None:
        if attention_mask.shape[-1] != 1:
            attention_mask = attention_mask[..., : key.shape[2]]
        if attention_mask.dtype == torch.bool:
            mask = attention_mask
        else:
            bias = attention_mask if bias is None else attention_mask + bias
    if bias is not None and bias.dtype != query.dtype:
        bias = bias.to(query.dtype)
    if s_aux is not None and s_aux.dtype not in (torch.float32, torch.float64):
        s_aux = s_aux.float()

    weights = _wants_weights(module, output_attentions)
    # As [B, T, H, D], which is how models make them and want the result.
    result = _attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, bias,
                     "top_left" if causal else "", scaling, softcap, s_aux, "bthd", weights)
    return result if weights else (result, None)
