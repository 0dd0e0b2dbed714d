"""Attention for PyTorch, on the CPU: a drop-in for F.scaled_dot_product_attention and its users.

>>> import torch, qkv.torch
>>> q, k, v = torch.randn(3, 2, 8, 20, 64)
>>> out = qkv.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
>>> with qkv.torch.use():  # the same for code that is not yours
...     same = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
>>> torch.equal(out, same)
True

Inference only: an input that requires a gradient is refused while gradients are enabled, since none
are computed here yet. Call under `torch.no_grad()` or `torch.inference_mode()`. Dual tensors of
forward mode are refused always. Under `torch.autocast("cpu")` inputs are cast as PyTorch's SDPA does.
"""

from __future__ import annotations

import threading
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from ._core import attention as _attention, plain_attention as _plain_attention

__all__ = ["MultiheadAttention", "scaled_dot_product_attention", "use"]


# The custom ops. Their arguments are those of qkv.attention that a graph may need; `causal` is "",
# "top_left" or "bottom_right", and `layout` "bhtd" or "bthd".
_ARGUMENTS = (
    "(Tensor query, Tensor key, Tensor value, Tensor? mask=None, Tensor? bias=None, *, "
    'str causal="", float? scale=None, float? softcap=None, Tensor? sinks=None, str layout="bhtd")'
)
_is_traced = torch.compiler.is_dynamo_compiling
_library = torch.library.Library("qkv", "FRAGMENT")
_library.define("attention" + _ARGUMENTS + " -> Tensor")
_library.define("attention_weights" + _ARGUMENTS + " -> (Tensor, Tensor)")


def _refuse(kind, where, subject, expected, found):
    raise kind(f"[qkv.torch.{where}] {subject}: expected {expected}, found {found}")


def _refuse_gradient(where, **tensors):
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            _refuse(ValueError, where, name, "a tensor without gradient, since no gradients are "
                    "computed here yet (.detach() it, or call under torch.no_grad())",
                    "requires_grad=True")


def _refuse_tangent(where, **tensors):
    """The same for forward mode, which has no no_grad()."""
    if _is_traced() or forward_ad._current_level < 0:
        return
    for name, tensor in tensors.items():
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            _refuse(ValueError, where, name, "a tensor without tangent, since no derivatives are "
                    "computed here yet (forward_ad.unpack_dual it)", "one of forward-mode AD")


def _autocast(*tensors):
    """What autocast makes of the inputs of an operator: those of PyTorch's SDPA are cast."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) if isinstance(t, Tensor) and t.is_cpu and t.is_floating_point()
                 and t.dtype != torch.float64 else t for t in tensors)


def _autocast_bias(bias):
    """A bias of float32 stays: it is read as it is, beside a query of any dtype."""
    return bias if bias is None or bias.dtype == torch.float32 else _autocast(bias)[0]


def _run(query, key, value, mask, bias, causal, scale, softcap, sinks, layout, weights):
    # In the order of qkv._core.attention.
    return _attention(query, key, value, mask, bias, causal or None, None, None, None, scale,
                      softcap, None, None, None, None, sinks, layout, None, weights, False, None)


def _attention_cpu(query, key, value, mask=None, bias=None, *, causal="", scale=None, softcap=None,
                   sinks=None, layout="bhtd"):
    return _run(query, key, value, mask, bias, causal, scale, softcap, sinks, layout, False)


def _attention_weights_cpu(query, key, value, mask=None, bias=None, *, causal="", scale=None,
                           softcap=None, sinks=None, layout="bhtd"):
    return _run(query, key, value, mask, bias, causal, scale, softcap, sinks, layout, True)


def _attention_fake(query, key, value, mask=None, bias=None, *, causal="", scale=None, softcap=None,
                    sinks=None, layout="bhtd"):
    return query.new_empty((*query.shape[:3], value.shape[3]))


def _attention_weights_fake(query, key, value, mask=None, bias=None, *, causal="", scale=None,
                            softcap=None, sinks=None, layout="bhtd"):
    heads, tokens = (1, 2) if layout == "bhtd" else (2, 1)
    weights = (query.shape[0], query.shape[heads], query.shape[tokens], key.shape[tokens])
    return query.new_empty((*query.shape[:3], value.shape[3])), query.new_empty(weights)


def _register(name, cpu, fake):
    op = getattr(torch.ops.qkv, name).default
    below_autograd = torch._C._AutoDispatchBelowAutograd

    def autograd(query, key, value, mask=None, bias=None, *, sinks=None, **options):
        if torch.is_grad_enabled():
            _refuse_gradient(name, query=query, key=key, value=value, bias=bias, sinks=sinks)
        _refuse_tangent(name, query=query, key=key, value=value, bias=bias, sinks=sinks)
        with below_autograd():
            return op(query, key, value, mask, bias, sinks=sinks, **options)

    _library.impl(name, cpu, "CPU")
    _library.impl(name, autograd, "Autograd")
    torch.library.register_fake("qkv::" + name, fake, lib=_library)
    return op


_op = _register("attention", _attention_cpu, _attention_fake)
_op_weights = _register("attention_weights", _attention_weights_cpu, _attention_weights_fake)


_plain = (Tensor, torch.nn.Parameter)
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)


def _attend(query, key, value, mask=None, bias=None, causal="", scale=None, softcap=None, sinks=None,
            layout="bhtd", weights=False):
    """The op; past PyTorch's dispatcher, which costs as much as a small attention, if it may be."""
    query, key, value = _autocast(query, key, value)
    bias = _autocast_bias(bias)
    if (not torch.compiler.is_compiling() and _modes() == 0 and type(query) in _plain
            and type(key) in _plain and type(value) in _plain and not query.is_meta):
        return _run(query, key, value, mask, bias, causal, scale, softcap, sinks, layout, weights)
    op = _op_weights if weights else _op
    return op(query, key, value, mask, bias, causal=causal, scale=scale, softcap=softcap,
              sinks=sinks, layout=layout)


def _as_4d(tensor, batch):
    """[*batch, H, T, D] with its batch broadcast, as [B, H, T, D]: a view where strides allow it."""
    if tensor.dim() < 4:
        tensor = tensor[(None,) * (4 - tensor.dim())]
    if len(batch) == 1 and tensor.shape[0] == batch[0]:
        return tensor
    return tensor.expand(*batch, *tensor.shape[-3:]).flatten(0, -4)


def _check_shapes(where, query, key, value, enable_gqa):
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            _refuse(TypeError, where, name, "a tensor", type(tensor).__name__)
        if tensor.dim() < 2:
            _refuse(ValueError, where, name, "2 or more dimensions (…, T, D)",
                    f"shape {list(tensor.shape)}")
        if tensor.dtype != query.dtype:
            _refuse(TypeError, where, name, f"the query's dtype {query.dtype}", tensor.dtype)
        if not tensor.is_cpu and not tensor.is_meta:
            _refuse(TypeError, where, name, "a tensor on the CPU", f"one on {tensor.device}")
        if tensor.is_meta != query.is_meta:
            _refuse(TypeError, where, name, f"the query's device {query.device}", tensor.device)
        if tensor.is_nested or tensor.layout != torch.strided:
            _refuse(TypeError, where, name, "a strided tensor",
                    "a nested one" if tensor.is_nested else f"one of layout {tensor.layout}")
    heads, key_heads = (t.shape[-3] if t.dim() > 2 else 1 for t in (query, key))
    if enable_gqa:
        if key_heads == 0 or heads % key_heads != 0:
            _refuse(ValueError, where, "key", f"heads that divide the query's {heads}", key_heads)
    elif heads != key_heads and key_heads != 1 and heads != 1:
        _refuse(ValueError, where, "key", f"the query's {heads} heads, or enable_gqa=True",
                f"{key_heads} heads")


def _mask_dtypes(dtype):
    return "dtype bool or torch.float32" if dtype == torch.float32 else f"dtype bool, {dtype} or torch.float32"


def _split_mask(where, attn_mask, query, key, batch, heads):
    """(mask, bias) of a mask that broadcasts against [*batch, heads, Tq, Tk]."""
    if attn_mask is None:
        return None, None
    if not isinstance(attn_mask, Tensor):
        _refuse(TypeError, where, "attn_mask", "a tensor or None", type(attn_mask).__name__)
    scores = (*batch, heads, query.shape[-2], key.shape[-2])
    if attn_mask.dim() > len(scores) or any(
            a != 1 and a != b for a, b in zip(reversed(attn_mask.shape), reversed(scores))):
        _refuse(ValueError, where, "attn_mask", f"a shape that broadcasts to {list(scores)}",
                list(attn_mask.shape))
    if len(batch) > 1 and attn_mask.dim() > 3:
        attn_mask = attn_mask.expand(scores).flatten(0, -4)
    if attn_mask.dtype == torch.bool:
        return attn_mask, None
    attn_mask = _autocast_bias(attn_mask)
    if attn_mask.dtype != query.dtype and attn_mask.dtype != torch.float32:
        _refuse(TypeError, where, "attn_mask", _mask_dtypes(query.dtype), attn_mask.dtype)
    return None, attn_mask


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """F.scaled_dot_product_attention, with its arguments and its meaning.

    Parameters
    ----------
    query, key, value : tensors (…, Hq, Tq, D), (…, Hkv, Tk, D) and (…, Hkv, Tk, Dv)
        On the CPU, strided in any way, of one dtype: float32, float64, float16 or bfloat16.
    attn_mask : tensor that broadcasts to (…, Hq, Tq, Tk)
        bool: True may attend; of the query's dtype or float32: added to the scores. Not together
        with `is_causal`.
    dropout_p : 0
        Anything else is refused.
    is_causal : bool
        Query i sees keys j ≤ i ("top_left").
    scale : float
        1/√D unless given.
    enable_gqa : bool
        Hq may be a multiple of Hkv; query head h reads key head h // (Hq // Hkv).

    Returns
    -------
    Tensor (…, Hq, Tq, Dv)
        0 for a query that sees no key. The op is `torch.ops.qkv.attention`, which goes through
        `torch.compile`.

    Examples
    --------
    >>> import torch, qkv.torch
    >>> q, k, v = torch.randn(2, 8, 5, 64), torch.randn(2, 2, 9, 64), torch.randn(2, 2, 9, 32)
    >>> qkv.torch.scaled_dot_product_attention(q, k, v, enable_gqa=True).shape
    torch.Size([2, 8, 5, 32])
    """
    if attn_mask is None and not dropout_p and not _is_traced():
        out = _plain_attention(query, key, value, bool(is_causal), scale)
        if out is not None:  # the usual case; what does not fit is seen, and said, below
            return out
    where = "scaled_dot_product_attention"
    causal = "top_left" if is_causal else ""
    query, key, value = _autocast(query, key, value)
    _check_shapes(where, query, key, value, enable_gqa)
    if dropout_p != 0:
        _refuse(ValueError, where, "dropout_p", "0: there is no dropout here", dropout_p)
    if is_causal and attn_mask is not None:
        _refuse(ValueError, where, "attn_mask", "None when is_causal=True", "a tensor")
    if torch.is_grad_enabled():
        _refuse_gradient(where, query=query, key=key, value=value, attn_mask=attn_mask)
    _refuse_tangent(where, query=query, key=key, value=value, attn_mask=attn_mask)

    rank = max(query.dim(), key.dim(), value.dim())
    if rank == 4 and query.dim() == 4 and query.shape[0] == key.shape[0] == value.shape[0]:
        batch = (query.shape[0],)
    else:
        batch = torch.broadcast_shapes(*(t.shape[:-3] for t in (query, key, value))) or (1,)
    query4, key4, value4 = (_as_4d(t, batch) for t in (query, key, value))
    if not enable_gqa and not query4.shape[1] == key4.shape[1] == value4.shape[1]:
        heads = max(query4.shape[1], key4.shape[1], value4.shape[1])
        query4, key4, value4 = (t.expand(-1, heads, -1, -1) for t in (query4, key4, value4))
    mask, bias = _split_mask(where, attn_mask, query, key, batch, query4.shape[1])
    out = _attend(query4, key4, value4, mask, bias, causal, scale)
    if rank == 4 and len(batch) == 1:
        return out
    if rank > 4:
        return out.unflatten(0, batch)
    return out.reshape(*out.shape[4 - rank:])


# PyTorch hides from a mode what happens inside its larger functions: F.multi_head_attention_forward
# calls SDPA by the name in its module, and the encoder layers have a fast path without SDPA. Both
# are the process's; while any thread is within `use`, the name leads here, which looks whose call
# it is, and the fast path is off.
_theirs = F.scaled_dot_product_attention
_lock = threading.Lock()
_users = 0
_fast_path = True


class _Here(threading.local):
    depth = 0


_here = _Here()


def _routed(*args, **kwargs):
    return (scaled_dot_product_attention if _here.depth > 0 else _theirs)(*args, **kwargs)


def _switch_on():
    global _users, _fast_path
    with _lock:
        if _users == 0:
            _fast_path = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            F.scaled_dot_product_attention = _routed
        _users += 1
    _here.depth += 1


def _switch_off():
    global _users
    _here.depth -= 1
    with _lock:
        _users -= 1
        if _users == 0:
            torch.backends.mha.set_fastpath_enabled(_fast_path)
            F.scaled_dot_product_attention = _theirs


class use(torch.overrides.TorchFunctionMode):
    """Within it, calls of F.scaled_dot_product_attention run here, whoever makes them.

    Calls of this thread only; nests; ends with the block, also by an exception. What cannot be
    computed here (dropout, gradients, a tensor that is not on the CPU) is refused, not handed back
    to PyTorch.

    Examples
    --------
    >>> import torch, qkv.torch
    >>> layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
    >>> with qkv.torch.use(), torch.no_grad():
    ...     layer(torch.randn(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __enter__(self):
        _switch_on()
        return super().__enter__()

    def __exit__(self, *exception):
        _switch_off()
        return super().__exit__(*exception)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is _theirs or func is _routed:
            func = scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


class MultiheadAttention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention, with its arguments, its results and its state dict.

    Masks have its polarity: True is hidden (in `scaled_dot_product_attention` and in
    `qkv.attention`, True may attend). A query that sees no key gets 0 and weights 0, where
    PyTorch's gives NaN. For inference: while gradients are enabled it refuses to run.

    Examples
    --------
    >>> import torch, qkv.torch
    >>> theirs = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval()
    >>> ours = qkv.torch.MultiheadAttention(64, 4, batch_first=True).eval()
    >>> ours.load_state_dict(theirs.state_dict())
    <All keys matched successfully>
    >>> x = torch.randn(2, 10, 64)
    >>> with torch.no_grad():
    ...     out, weights = ours(x, x, x)
    >>> out.shape, weights.shape
    (torch.Size([2, 10, 64]), torch.Size([2, 10, 10]))
    """

    # nn.TransformerEncoderLayer has a fast path that takes the weights of its attention and never
    # calls it, unless this says that they are not in one matrix. Here, whether in_proj_weight is
    # there tells.
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False,
                 add_zero_attn=False, kdim=None, vdim=None, batch_first=False, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim,
                         batch_first, device, dtype)
        self._qkv_same_embed_dim = False

    def __setstate__(self, state):
        super().__setstate__(state)
        self._qkv_same_embed_dim = False

    def _reset_parameters(self):
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = False

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        """query (N, L, E) if batch_first, else (L, N, E), or (L, E); key and value with S for L.

        Returns the output, shaped as the query, and the weights: (N, L, S) averaged over the heads,
        (N, H, L, S) with average_attn_weights=False, None with need_weights=False.

        key_padding_mask (N, S) and attn_mask (L, S) or (N·H, L, S): bool, True is hidden, or float,
        added to the scores. is_causal promises that attn_mask is the causal one.
        """
        where = "MultiheadAttention"
        if query.is_nested:
            return self._nested(query, key, value, key_padding_mask, need_weights, attn_mask)
        if self.training and self.dropout > 0:
            _refuse(ValueError, where, "dropout", "0, or a module in eval()", self.dropout)
        if is_causal and attn_mask is None:
            _refuse(ValueError, where, "attn_mask", "a mask when is_causal=True", "None")
        if query.dim() not in (2, 3) or not query.dim() == key.dim() == value.dim():
            _refuse(ValueError, where, "query", "2 or 3 dimensions, as key and value",
                    f"{query.dim()}, {key.dim()} and {value.dim()}")
        if torch.is_grad_enabled():
            _refuse_gradient(where, query=query, key=key, value=value,
                             **{n.replace(".", "_"): p for n, p in self.named_parameters()})
        _refuse_tangent(where, query=query, key=key, value=value)

        batched = query.dim() == 3
        if not batched:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = self._project(query, key, value)
        key_padding_mask, attn_mask = map(_autocast_bias, (key_padding_mask, attn_mask))
        mask, bias = self._masks(where, key_padding_mask, attn_mask, query, key, batched, q.dtype)
        causal = is_causal and q.shape[1] == k.shape[1] == key.shape[1] and not attn_mask.dim() == 3
        if causal:  # the promise saves the reading of the mask
            mask, bias = self._masks(where, key_padding_mask, None, query, key, batched,
                                     q.dtype)
        out = _attend(q, k, v, mask, bias, "top_left" if causal else "", layout="bthd",
                      weights=need_weights)
        out, weights = out if need_weights else (out, None)

        out = self.out_proj(out.flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _nested(self, query, key, value, key_padding_mask, need_weights, attn_mask):
        """What nn.TransformerEncoder makes of a padded batch: self-attention, without weights."""
        if (not self.batch_first or query is not key or key is not value or need_weights
                or key_padding_mask is not None or attn_mask is not None):
            _refuse(ValueError, "MultiheadAttention", "query", "a nested tensor only as key and "
                    "value too, batch_first, without masks and weights", "other arguments with it")
        x = query.to_padded_tensor(0.0)
        lengths = torch.tensor([one.shape[0] for one in query.unbind()])
        there = torch.arange(x.shape[1]) < lengths[:, None]
        out, _ = self.forward(x, x, x, key_padding_mask=~there, need_weights=False)
        return torch._nested_tensor_from_mask(out, there, mask_check=False), None

    def _project(self, query, key, value):
        """Query, key and value, (N, T, H, D), with the tokens that bias_kv and zero_attn add."""
        E, H = self.embed_dim, self.num_heads
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is None:
            matrices = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
            q, k, v = map(F.linear, (query, key, value), matrices, biases)
        elif query is key and key is value:
            q, k, v = F.linear(query, self.in_proj_weight, self.in_proj_bias).split(E, dim=-1)
        else:
            q, k, v = map(F.linear, (query, key, value), self.in_proj_weight.chunk(3), biases)
        N = k.shape[0]
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.expand(N, 1, E)], dim=1)
            v = torch.cat([v, self.bias_v.expand(N, 1, E)], dim=1)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        return tuple(t.unflatten(-1, (H, E // H)) for t in (q, k, v))

    def _masks(self, where, key_padding_mask, attn_mask, query, key, batched, dtype):
        """(mask, bias) in the polarity of qkv, over the added tokens too, which all see."""
        N, L, S, H = query.shape[0], query.shape[1], key.shape[1], self.num_heads
        added = (self.bias_k is not None) + self.add_zero_attn
        given = []
        if key_padding_mask is not None:
            wanted = (N, S) if batched else (S,)
            self._check_mask(where, "key_padding_mask", key_padding_mask, [wanted], dtype)
            given.append(key_padding_mask.reshape(N, 1, 1, S))
        if attn_mask is not None:
            self._check_mask(where, "attn_mask", attn_mask, [(L, S), (N * H, L, S)], dtype)
            given.append(attn_mask if attn_mask.dim() == 2 else attn_mask.unflatten(0, (N, H)))
        mask = bias = None
        for one in given:
            if one.dtype == torch.bool:
                one = F.pad(one.logical_not(), (0, added), value=True)
                mask = one if mask is None else mask & one
            else:
                one = F.pad(one, (0, added))
                bias = one if bias is None else bias + one
        return mask, bias

    @staticmethod
    def _check_mask(where, name, mask, shapes, dtype):
        if tuple(mask.shape) not in shapes:
            _refuse(ValueError, where, name, "shape " + " or ".join(str(list(s)) for s in shapes),
                    list(mask.shape))
        if mask.dtype not in (torch.bool, dtype, torch.float32):
            _refuse(TypeError, where, name, _mask_dtypes(dtype), mask.dtype)
