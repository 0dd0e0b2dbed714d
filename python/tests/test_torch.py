"""qkv.torch against PyTorch's own."""

import copy
import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import qkv.torch  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as theirs  # noqa: E402

ours = qkv.torch.scaled_dot_product_attention

# f32, sums of some ten terms around 1, twice: as in test_attention.py.
CLOSE = dict(rtol=1e-5, atol=1e-5)


@pytest.fixture(autouse=True)
def no_grad():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def tensors(q=(2, 4, 7, 12), k=(2, 4, 9, 12), v=(2, 4, 9, 20), dtype=torch.float32):
    return torch.randn(q, dtype=dtype), torch.randn(k, dtype=dtype), torch.randn(v, dtype=dtype)


BOOL = torch.rand(2, 4, 7, 9) < 0.6
BOOL[..., 0] = True

CASES = {
    "plain": {},
    "scale": dict(scale=0.3),
    "causal": dict(is_causal=True),
    "bool mask": dict(attn_mask=BOOL),
    "bool mask of keys": dict(attn_mask=BOOL[0, 0, :1]),
    "bool mask per batch": dict(attn_mask=BOOL[:, :1, :1]),
    "float mask": dict(attn_mask=torch.randn(4, 7, 9)),
    "float mask that hides": dict(attn_mask=torch.where(BOOL, 0.0, -torch.inf)),
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_sdpa(options):
    q, k, v = tensors()
    torch.testing.assert_close(ours(q, k, v, **options), theirs(q, k, v, **options), **CLOSE)


SHAPES = {
    "two dimensions": ((7, 12), (9, 12), (9, 20)),
    "three": ((4, 7, 12), (4, 9, 12), (4, 9, 20)),
    "five": ((3, 2, 4, 7, 12), (3, 2, 4, 9, 12), (3, 2, 4, 9, 20)),
    "broadcast batch": ((2, 4, 7, 12), (1, 4, 9, 12), (4, 9, 20)),
    "one key head": ((2, 4, 7, 12), (2, 1, 9, 12), (2, 1, 9, 20)),
    "no query": ((2, 4, 0, 12), (2, 4, 9, 12), (2, 4, 9, 20)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
def test_sdpa_shapes(shapes):
    q, k, v = tensors(*shapes)
    for options in ({}, dict(is_causal=True), dict(attn_mask=torch.randn(q.shape[-2], 9))):
        expected = theirs(q, k, v, **options)
        got = ours(q, k, v, **options)
        assert got.shape == expected.shape
        torch.testing.assert_close(got, expected, **CLOSE)


def test_sdpa_mask_of_five_dimensions():
    q, k, v = tensors((3, 2, 4, 7, 12), (3, 2, 4, 9, 12), (3, 2, 4, 9, 20))
    for mask in (torch.randn(3, 1, 4, 7, 9), torch.randn(3, 2, 1, 1, 9), torch.randn(2, 1, 7, 9)):
        torch.testing.assert_close(ours(q, k, v, mask), theirs(q, k, v, mask), **CLOSE)


def test_sdpa_grouped_heads():
    q, k, v = tensors(k=(2, 2, 9, 12), v=(2, 2, 9, 20))
    torch.testing.assert_close(
        ours(q, k, v, enable_gqa=True), theirs(q, k, v, enable_gqa=True), **CLOSE)
    with pytest.raises(ValueError, match=r"key: expected the query's 4 heads, or enable_gqa=True, found 2 heads"):
        ours(q, k, v)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_sdpa_dtypes(dtype):
    q, k, v = tensors(dtype=dtype)
    expected = theirs(q.double(), k.double(), v.double())
    got = ours(q, k, v)
    assert got.dtype == dtype
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), expected, rtol=unit, atol=max(unit, 1e-14))


AUTOCAST = {
    "plain": {},
    "mixed": dict(key=torch.bfloat16, value=torch.float16),
    "a mask": dict(mask=torch.float32),
    "a mask of another half": dict(mask=torch.float16),
}


@pytest.mark.parametrize("dtypes", AUTOCAST.values(), ids=AUTOCAST.keys())
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype, dtypes):
    q, k, v = tensors()
    k, v = k.to(dtypes.get("key", k.dtype)), v.to(dtypes.get("value", v.dtype))
    mask = torch.randn(7, 9).to(dtypes["mask"]) if "mask" in dtypes else None
    cast = [t.to(dtype).double() for t in (q, k, v)]
    exact = theirs(*cast, None if mask is None else mask.double())
    # Rounded once at the end, and the mask by PyTorch; weights add up to 1.
    close = dict(rtol=2 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)
    with torch.autocast("cpu", dtype=dtype):
        wanted = theirs(q, k, v, mask)
        results = [ours(q, k, v, mask), ours(q[0], k[0], v[0], mask)[None]]
        with qkv.torch.use():
            results.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, mask))
        results.append(torch.compile(ours, backend="aot_eager", fullgraph=True)(q, k, v, mask))
    for got in results:
        assert got.dtype == wanted.dtype == dtype
        torch.testing.assert_close(got.double(), exact[:len(got)], **close)
    if mask is None and not dtypes:
        assert ours(q, k, v).dtype == torch.float32
        with torch.autocast("cpu", dtype=dtype):
            assert ours(q.double(), k.double(), v.double()).dtype == torch.float64  # which is never cast


@pytest.mark.parametrize("options", [{}, dict(add_bias_kv=True, add_zero_attn=True)])
def test_mha_under_autocast(options):
    ours, theirs = pair(batch_first=True, **options)
    x = torch.randn(3, 5, 16)
    for mask in (None, torch.randn(5, 5), torch.randn(5, 5).bfloat16()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = ours(x, x, x, attn_mask=mask)[0]
            wanted = theirs(x, x, x, attn_mask=mask)[0]
        assert got.dtype == wanted.dtype
        # Four roundings to bf16 (projections, scores, weights, output) of values below 8.
        torch.testing.assert_close(got, wanted, rtol=0.1, atol=4 * 8 * torch.finfo(torch.bfloat16).eps)


def test_meta_tensors_give_shapes():
    q, k, v = (t.to("meta") for t in tensors())
    for inputs in ((q, k, v), (q[0], k[0], v[0]), (q[None], k[None], v[None])):
        got = ours(*inputs)
        assert got.is_meta and got.shape == theirs(*inputs).shape
    with qkv.torch.use():
        assert torch.nn.functional.scaled_dot_product_attention(q, k, v).is_meta
    x = torch.empty(2, 5, 16, device="meta")
    out, weights = qkv.torch.MultiheadAttention(16, 4, batch_first=True, device="meta")(x, x, x)
    assert out.is_meta and out.shape == x.shape and weights.shape == (2, 5, 5)
    with pytest.raises(TypeError, match="key: expected the query's device meta, found cpu"):
        ours(q, torch.randn(2, 4, 9, 12), v)


def test_refused_by_what_they_are():
    q, k, v = tensors()
    of = {"a tensor on the device meta": lambda: qkv.attention(q.to("meta"), k, v),
          "a tensor of layout torch.sparse_coo": lambda: qkv.attention(q.to_sparse(), k, v),
          "one of layout torch.sparse_coo": lambda: ours(q.to_sparse(), k, v),
          "a tensor inside torch.vmap": lambda: torch.vmap(lambda a: qkv.attention(a, k, v))(q[None])}
    for found, call in of.items():
        with pytest.raises(TypeError, match=f"query: expected .*, found {found}"):
            call()
    with pytest.raises(TypeError, match="found a tensor inside torch.vmap"):
        torch.vmap(lambda a: ours(a, k, v))(q[None])
    for dtype in (torch.complex64, torch.float8_e4m3fn):
        for call in (ours, qkv.attention):
            with pytest.raises(TypeError, match="query: expected dtype f32, f64, f16 or bf16, found"):
                call(q.to(dtype), k.to(dtype), v.to(dtype))


def test_a_query_that_sees_nothing_gets_zero():
    q, k, v = tensors()
    assert not ours(q, k, v, attn_mask=torch.zeros(7, 9, dtype=torch.bool)).any()


REFUSED = {
    "dropout": (ValueError, dict(dropout_p=0.1), r"dropout_p: expected 0"),
    "mask and causal": (ValueError, dict(attn_mask=BOOL, is_causal=True), r"attn_mask: expected None when"),
    "mask shape": (ValueError, dict(attn_mask=BOOL[..., :3]), r"attn_mask: expected a shape that broadcasts to \[2, 4, 7, 9\], found \[2, 4, 7, 3\]"),
    "mask dtype": (TypeError, dict(attn_mask=torch.ones(7, 9, dtype=torch.int64)), r"attn_mask: expected dtype bool or torch.float32, found torch.int64"),
    "key dtype": (TypeError, dict(key=torch.randn(2, 4, 9, 12).double()), r"key: expected the query's dtype torch.float32, found torch.float64"),
    "key width": (ValueError, dict(key=torch.randn(2, 4, 9, 13)), r"key: expected"),
    "no tensor": (TypeError, dict(value=[1]), r"value: expected a tensor, found list"),
    "one dimension": (ValueError, dict(query=torch.randn(3)), r"query: expected 2 or more dimensions"),
}


@pytest.mark.parametrize("kind, arguments, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused(kind, arguments, message):
    q, k, v = tensors()
    with pytest.raises(kind, match=message):
        ours(**{**dict(query=q, key=k, value=v), **arguments})


def test_gradients_are_refused_not_dropped():
    q, k, v = tensors()
    v.requires_grad_()
    ours(q, k, v)  # not while gradients are off
    with torch.enable_grad():
        for call in (ours, torch.ops.qkv.attention, torch.ops.qkv.attention_weights):
            with pytest.raises(ValueError, match="value: expected a tensor without gradient"):
                call(q, k, v)
        with pytest.raises(ValueError, match="attn_mask: expected a tensor without gradient"):
            ours(q, k, v.detach(), torch.zeros(7, 9, requires_grad=True))
        with torch.inference_mode():
            assert not ours(q, k, v).requires_grad


DUAL = {
    "function": lambda a, k, v: ours(a, k, v),
    "function, the long way": lambda a, k, v: ours(a[0], k[0], v[0]),
    "mask": lambda a, k, v: ours(k, k, v, a[..., :1]),
    "op": lambda a, k, v: torch.ops.qkv.attention(a, k, v),
    "qkv.attention": lambda a, k, v: qkv.attention(k, v, a),
    "bias": lambda a, k, v: qkv.attention(k, k, v, bias=a[..., :1]),
    "MultiheadAttention": lambda a, k, v: pair()[0](*[a.reshape(9, -1, 16)] * 3)[0],
}


@pytest.mark.parametrize("function", DUAL.values(), ids=DUAL.keys())
def test_forward_mode_is_refused_not_dropped(function):
    q, k, v = torch.randn(3, 2, 4, 9, 16)

    def call(a):
        return function(a, k, v)

    message = "expected a tensor without tangent.* found one of forward-mode AD"
    with forward_ad.dual_level():
        call(q)  # a tensor without a tangent is fine there
        with pytest.raises(ValueError, match=message):
            call(forward_ad.make_dual(q, torch.ones_like(q)))
    with pytest.raises(ValueError, match=message):
        torch.func.jvp(call, (q,), (torch.ones_like(q),))
    call(q)


def test_opcheck():
    q, k, v = tensors()
    mask, bias, sinks = BOOL, torch.randn(7, 9), torch.randn(4)
    for op in (torch.ops.qkv.attention.default, torch.ops.qkv.attention_weights.default):
        torch.library.opcheck(op, (q, k, v))
        torch.library.opcheck(op, (q, k, v, mask, bias), dict(
            scale=0.3, softcap=2.0, sinks=sinks, causal="top_left"))
        torch.library.opcheck(op, tuple(x.transpose(1, 2) for x in (q, k, v)), dict(layout="bthd"))


def test_compile():
    q, k, v = tensors(k=(2, 2, 9, 12), v=(2, 2, 9, 20))

    def model(q, k, v, mask):
        return ours(q * 2, k, v, mask, enable_gqa=True) + 1

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for mask in (None, BOOL, torch.randn(7, 9)):
        torch.testing.assert_close(compiled(q, k, v, mask), model(q, k, v, mask))


def test_compile_with_dynamic_shapes():
    compiled = torch.compile(lambda q, k, v: ours(q, k, v, is_causal=True), backend="aot_eager",
                             fullgraph=True, dynamic=True)
    for T in (5, 9, 17):
        q, k, v = torch.randn(3, 2, 4, T, 16)
        torch.testing.assert_close(compiled(q, k, v), ours(q, k, v, is_causal=True))


def counted(monkeypatch):
    calls = SimpleNamespace(ours=0)

    def count(*args, **kwargs):
        calls.ours += 1
        return ours(*args, **kwargs)

    monkeypatch.setattr(qkv.torch, "scaled_dot_product_attention", count)
    return calls


def test_use_routes_nests_and_restores(monkeypatch):
    calls = counted(monkeypatch)
    F = torch.nn.functional
    q, k, v = tensors()
    before = F.scaled_dot_product_attention
    expected = theirs(q, k, v)
    with qkv.torch.use():
        torch.testing.assert_close(theirs(q, k, v), expected, **CLOSE)  # by an old name, too
        with qkv.torch.use():
            F.scaled_dot_product_attention(q, k, v)
        F.scaled_dot_product_attention(q, k, v, None, 0.0, True)
        assert calls.ours == 3
    with pytest.raises(ValueError, match="dropout_p"), qkv.torch.use():
        theirs(q, k, v, dropout_p=0.5)
    theirs(q, k, v)
    assert calls.ours == 4 and F.scaled_dot_product_attention is before


@pytest.mark.parametrize("name", ["old", "new"])
def test_use_is_of_its_thread(monkeypatch, name):
    calls = counted(monkeypatch)
    q, k, v = tensors()

    def elsewhere():
        (theirs if name == "old" else torch.nn.functional.scaled_dot_product_attention)(q, k, v)

    with qkv.torch.use():
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        assert calls.ours == 0
        theirs(q, k, v)
    assert calls.ours == 1


def test_use_reaches_into_modules(monkeypatch):
    calls = counted(monkeypatch)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    expected = layer(x)
    with qkv.torch.use():
        torch.testing.assert_close(layer(x), expected, **CLOSE)
        assert not torch.backends.mha.get_fastpath_enabled()
    assert calls.ours == 1 and torch.backends.mha.get_fastpath_enabled()


def ops_of(seen):
    """A backend that computes as eager does, and notes the names of the ops."""

    def note(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=note)


def test_use_under_compile():
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x, (q, k, v) = torch.randn(2, 5, 16), tensors()
    for model, inputs in ((lambda q, k, v: theirs(q, k, v) * 2, (q, k, v)), (layer, (x,))):
        torch.compiler.reset()
        seen = []
        compiled = torch.compile(model, backend=ops_of(seen))
        plain = compiled(*inputs)
        assert "qkv.attention.default" not in seen
        with qkv.torch.use():
            torch.testing.assert_close(compiled(*inputs), plain, **CLOSE)
        assert seen.count("qkv.attention.default") == 1
        torch.testing.assert_close(compiled(*inputs), plain, rtol=0, atol=0)


MODULES = {
    "plain": {},
    "batch_first": dict(batch_first=True),
    "no bias": dict(bias=False),
    "kdim, vdim": dict(kdim=10, vdim=6),
    "bias_kv": dict(add_bias_kv=True),
    "zero_attn": dict(add_zero_attn=True),
    "all": dict(add_bias_kv=True, add_zero_attn=True, kdim=10, vdim=6, batch_first=True),
}


def pair(**options):
    theirs = torch.nn.MultiheadAttention(16, 4, **options).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    ours = qkv.torch.MultiheadAttention(16, 4, **options).eval()
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return ours, theirs


def mha_inputs(N=3, L=5, S=7, kdim=16, vdim=16, batch_first=False, **_):
    shapes = [(N, L, 16), (N, S, kdim), (N, S, vdim)]
    return [torch.randn(s if batch_first else (s[1], s[0], s[2])) for s in shapes]


def mha_masks(N=3, L=5, S=7, H=4):
    padding = torch.zeros(N, S, dtype=torch.bool)
    padding[1, 4:] = padding[2, :2] = True
    hidden = torch.rand(L, S) < 0.3
    hidden[:, 2:4] = False
    many = torch.rand(N * H, L, S) < 0.3
    many[..., 2:4] = False
    minus = torch.where(padding, -torch.inf, 0.0)
    return [{}, dict(key_padding_mask=padding), dict(attn_mask=hidden), dict(attn_mask=many),
            dict(attn_mask=torch.randn(L, S), key_padding_mask=minus),
            dict(attn_mask=torch.randn(N * H, L, S), key_padding_mask=minus),
            dict(attn_mask=many, key_padding_mask=padding)]


@pytest.mark.parametrize("options", MODULES.values(), ids=MODULES.keys())
def test_mha(options):
    ours, theirs = pair(**options)
    inputs = mha_inputs(**options)
    for masks in mha_masks():
        for more in ({}, dict(average_attn_weights=False), dict(need_weights=False)):
            (out, weights), (wanted, wanted_weights) = ours(*inputs, **masks, **more), theirs(*inputs, **masks, **more)
            torch.testing.assert_close(out, wanted, **CLOSE)
            if wanted_weights is None:
                assert weights is None
            else:
                torch.testing.assert_close(weights, wanted_weights, **CLOSE)


def test_mha_self_attention_and_causal():
    ours, theirs = pair(batch_first=True)
    x = torch.randn(2, 6, 16)
    causal = torch.ones(6, 6).triu(1).bool()
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    for more in ({}, dict(need_weights=False), dict(key_padding_mask=padding)):
        got = ours(x, x, x, attn_mask=causal, is_causal=True, **more)
        wanted = theirs(x, x, x, attn_mask=causal, is_causal=True, **more)
        torch.testing.assert_close(got, wanted, **CLOSE)
    with pytest.raises(ValueError, match="attn_mask: expected a mask when is_causal=True, found None"):
        ours(x, x, x, is_causal=True)


def test_mha_without_a_batch():
    ours, theirs = pair()
    x = torch.randn(6, 16)
    padding = torch.tensor([False] * 5 + [True])
    for masks in ({}, dict(key_padding_mask=padding)):
        torch.testing.assert_close(ours(x, x, x, **masks), theirs(x, x, x, **masks), **CLOSE)


def test_mha_has_no_nan():
    ours, _ = pair(batch_first=True)
    x = torch.randn(2, 6, 16)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0] = True
    out, weights = ours(x, x, x, key_padding_mask=padding)
    assert out.isfinite().all() and not weights[0].any()
    torch.testing.assert_close(weights[1].sum(-1), torch.ones(6))


def test_mha_refuses():
    ours, _ = pair(batch_first=True)
    x = torch.randn(2, 6, 16)
    with torch.enable_grad(), pytest.raises(ValueError, match="requires_grad=True"):
        ours(x, x, x)
    with pytest.raises(ValueError, match=r"key_padding_mask: expected shape \[2, 6\], found \[2, 5\]"):
        ours(x, x, x, key_padding_mask=torch.zeros(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="dropout: expected 0"):
        qkv.torch.MultiheadAttention(16, 4, dropout=0.1)(x, x, x)
    assert ours(x, x, x, need_weights=False)[1] is None


def test_mha_compiles_and_copies():
    ours, theirs = pair(batch_first=True)
    x = torch.randn(2, 6, 16)
    wanted = theirs(x, x, x)
    torch.testing.assert_close(copy.deepcopy(ours)(x, x, x), wanted, **CLOSE)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, x, x), wanted, **CLOSE)


@pytest.mark.parametrize("late", [False, True])
def test_mha_in_an_encoder(monkeypatch, late):
    """PyTorch's fast path takes the weights of an attention and does not call it."""
    calls, forward = [], qkv.torch.MultiheadAttention.forward

    def count(self, query, *args, **kwargs):
        if not query.is_nested:  # which is a call of another
            calls.append(1)
        return forward(self, query, *args, **kwargs)

    monkeypatch.setattr(qkv.torch.MultiheadAttention, "forward", count)
    ours, theirs = pair(batch_first=True)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    layer.self_attn = theirs
    wanted = copy.deepcopy(layer)
    if not late:
        layer.self_attn = ours
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=late).eval()
    if late:  # the encoder has made up its mind that it may nest
        for one in encoder.layers:
            one.self_attn = copy.deepcopy(ours)
    x, padding = torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    torch.testing.assert_close(encoder.layers[0](x), wanted(x), **CLOSE)
    assert len(calls) == 1
    got = encoder(x, src_key_padding_mask=padding)
    assert len(calls) == 3
    torch.testing.assert_close(got[~padding], torch.nn.TransformerEncoder(wanted, 2).eval()(
        x, src_key_padding_mask=padding)[~padding], **CLOSE)
    padding[0] = True
    assert encoder(x, src_key_padding_mask=padding).isfinite().all() and len(calls) == 5
    assert encoder.layers[0](x, src_key_padding_mask=padding).isfinite().all() and len(calls) == 6


@pytest.mark.parametrize("options", [{}, dict(kdim=10, vdim=6)])
def test_mha_can_be_reset(options):
    ours = qkv.torch.MultiheadAttention(16, 4, **options)
    before = copy.deepcopy(ours.state_dict())
    ours._reset_parameters()
    assert list(ours.state_dict()) == list(before)
    assert not torch.equal(next(ours.parameters()), next(iter(before.values())))
