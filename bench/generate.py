#!/usr/bin/env python3
"""Decoding token by token with a GPT-2-small-sized random model: qkv beside PyTorch and ONNX Runtime.

    bench/generate.py                       # GPT-2 small, 512 tokens before, medians of 7 rounds
    bench/generate.py --context 64 --rounds 3 --only qkv,eager

Each contender is a process of its own, of which one runs at a time, in rounds: each decodes a few tokens
a round, greedily, from the same prompt. All have to say the same tokens. Beside tokens/s stands what the
weights and the cache that a step has to read would take at the bandwidth that was measured in the same
round. Contenders:

    qkv        qkv.GPT's session, f32 weights and cache
    eager      transformers, PyTorch, DynamicCache
    compiled   the same through torch.compile with frozen weights, StaticCache
    onnx       ONNX Runtime, GroupQueryAttention with a shared buffer, weights prepacked
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = dict(n_layer=12, n_head=12, n_embd=768, vocab_size=50257, n_positions=1024)


def make_model(folder):
    """Weights as GPT-2 initialises them, but a head that prefers something: ties would be a lottery."""
    import torch
    import transformers

    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL)).eval()
    with torch.no_grad():
        for parameter in model.transformer.h.parameters():
            parameter.mul_(2 if parameter.dim() > 1 else 1)
    model.save_pretrained(folder)


class Qkv:
    def __init__(self, folder, context, threads):
        import qkv

        self.gpt = qkv.GPT(folder, threads=threads)
        self.session = self.gpt._session(SMALL["n_positions"])

    def start(self, prompt):
        self.session.truncate(0)
        return int(self.session.append(prompt).argmax())

    def rewind(self, length):
        self.session.truncate(length)

    def step(self, token):
        return int(self.session.append([token]).argmax())


class Eager:
    def __init__(self, folder, context, threads):
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
        self.cache = transformers.DynamicCache()

    def run(self, tokens):
        with self.torch.inference_mode():
            out = self.model(self.torch.tensor([tokens]), past_key_values=self.cache, use_cache=True,
                             logits_to_keep=1)
            return int(out.logits[0, -1].argmax())

    def start(self, prompt):
        return self.run(prompt)

    def rewind(self, length):
        extra = self.cache.get_seq_length() - length
        if extra > 0:
            self.cache.crop(-extra)

    def step(self, token):
        return self.run([token])


class Compiled(Eager):
    def __init__(self, folder, context, threads):
        super().__init__(folder, context, threads)
        import torch._inductor.config
        import transformers

        torch._inductor.config.freezing = True
        self.cache = transformers.StaticCache(config=self.model.config, max_cache_len=SMALL["n_positions"])
        self.forward = torch.compile(self.model.forward, dynamic=False)
        self.length = 0

    def run(self, tokens):
        torch = self.torch
        forward = self.forward if len(tokens) == 1 else self.model.forward
        with torch.no_grad():  # freezing needs it so
            where = torch.arange(self.length, self.length + len(tokens))
            out = forward(input_ids=torch.tensor([tokens]), past_key_values=self.cache, use_cache=True,
                          cache_position=where, position_ids=where[None], logits_to_keep=1)
        self.length += len(tokens)
        return int(out.logits[0, -1].argmax())

    def rewind(self, length):
        self.length = length
        for layer in getattr(self.cache, "layers", []):
            if hasattr(layer, "cumulative_length"):
                value = layer.cumulative_length
                layer.cumulative_length = value.fill_(length) if hasattr(value, "fill_") else length


def onnx_graph(folder, path):
    """GPT-2 with the operators that ONNX Runtime has for it."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load_file

    weights = {name.removeprefix("transformer."): array for name, array in load_file(f"{folder}/model.safetensors").items()}
    heads, d, layers = SMALL["n_head"], SMALL["n_embd"], SMALL["n_layer"]
    nodes, constants = [], []

    def constant(name, array):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(op, inputs, output, domain="", **attributes):
        nodes.append(helper.make_node(op, inputs, [output] if isinstance(output, str) else output, domain=domain,
                                      **attributes))
        return output

    def norm(x, name):
        return node("LayerNormalization", [x, constant(f"{name}.w", weights[f"{name}.weight"]),
                                           constant(f"{name}.b", weights[f"{name}.bias"])], f"{name}.out", epsilon=1e-5)

    def linear(x, name):
        product = node("MatMul", [x, constant(f"{name}.w", weights[f"{name}.weight"])], f"{name}.product")
        return node("Add", [product, constant(f"{name}.b", weights[f"{name}.bias"])], f"{name}.out")

    x = node("Add", [node("Gather", [constant("wte", weights["wte.weight"]), "ids"], "token"),
                     node("Gather", [constant("wpe", weights["wpe.weight"]), "positions"], "position")], "x")
    split = constant("split", np.array([d, d, d], dtype=np.int64))
    for n in range(layers):
        at = f"h.{n}"
        q, k, v = node("Split", [linear(norm(x, f"{at}.ln_1"), f"{at}.attn.c_attn"), split],
                       [f"{at}.q", f"{at}.k", f"{at}.v"], axis=-1)
        node("GroupQueryAttention", [q, k, v, f"past.{n}.k", f"past.{n}.v", "seqlens", "total"],
             [f"{at}.y", f"present.{n}.k", f"present.{n}.v"], domain="com.microsoft", num_heads=heads, kv_num_heads=heads)
        x = node("Add", [x, linear(f"{at}.y", f"{at}.attn.c_proj")], f"{at}.x1")
        hidden = node("Gelu", [linear(norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc")], f"{at}.gelu", approximate="tanh")
        x = node("Add", [x, linear(hidden, f"{at}.mlp.c_proj")], f"{at}.x2")
    node("MatMul", [norm(x, "ln_f"), constant("head", weights["wte.weight"].T)], "logits")
    f32, i64, i32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
    value = helper.make_tensor_value_info
    cache = [1, heads, SMALL["n_positions"], d // heads]
    inputs = [value("ids", i64, [1, "T"]), value("positions", i64, [1, "T"]), value("seqlens", i32, [1]),
              value("total", i32, [1])]
    outputs = [value("logits", f32, [1, "T", SMALL["vocab_size"]])]
    for n in range(layers):
        inputs += [value(f"past.{n}.{c}", f32, cache) for c in "kv"]
        outputs += [value(f"present.{n}.{c}", f32, cache) for c in "kv"]
    model = helper.make_model(helper.make_graph(nodes, "gpt2", inputs, outputs, constants),
                              opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
                              ir_version=9)
    onnx.save(model, path)


class Onnx:
    def __init__(self, folder, context, threads):
        import numpy as np
        import onnxruntime as ort

        path = Path(folder) / "decode.onnx"
        if not path.exists():
            onnx_graph(folder, path)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.np, self.ort = np, ort
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        shape = (1, SMALL["n_head"], SMALL["n_positions"], SMALL["n_embd"] // SMALL["n_head"])
        self.cache = {f"{n}.{c}": ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
                      for n in range(SMALL["n_layer"]) for c in "kv"}
        self.length = 0

    def run(self, tokens):
        np, total = self.np, self.length + len(tokens)
        binding = self.session.io_binding()
        for name, value in (("ids", np.array([tokens], np.int64)),
                            ("positions", np.arange(self.length, total, dtype=np.int64)[None]),
                            ("seqlens", np.array([total - 1], np.int32)), ("total", np.array([total], np.int32))):
            binding.bind_cpu_input(name, value)
        for name, value in self.cache.items():
            binding.bind_ortvalue_input(f"past.{name}", value)
            binding.bind_ortvalue_output(f"present.{name}", value)
        binding.bind_output("logits", "cpu")
        self.session.run_with_iobinding(binding)
        self.length = total
        logits = next(o for o in binding.get_outputs() if o.shape()[-1] == SMALL["vocab_size"])
        return int(logits.numpy()[0, -1].argmax())

    def start(self, prompt):
        self.length = 0
        return self.run(prompt)

    def rewind(self, length):
        self.length = length

    def step(self, token):
        return self.run([token])


CONTENDERS = {"qkv": Qkv, "eager": Eager, "compiled": Compiled, "onnx": Onnx}


def work(name, folder, context, threads):
    """A contender behind its pipe: a line with a number of tokens, answered by {"ms": …, "tokens": …}."""
    answers, sys.stdout = sys.stdout, sys.stderr
    tell = lambda **what: print(json.dumps(what), file=answers, flush=True)
    try:
        engine = CONTENDERS[name](folder, context, threads)
        prompt = [(7919 * i + 13) % SMALL["vocab_size"] for i in range(context)]
        first = engine.start(prompt)
        for _ in range(3):  # warm up, compile
            token = first
            engine.rewind(context)
            for _ in range(3):
                token = engine.step(token)
        tell(ready=True)
    except Exception as error:
        tell(ready=False, why=f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}")
        raise
    for line in sys.stdin:
        engine.rewind(context)
        token, tokens, times = first, [], []
        for _ in range(int(line)):
            tokens.append(token)
            begin = time.perf_counter()
            token = engine.step(token)
            times.append(time.perf_counter() - begin)
        tell(ms=1000 * statistics.median(times), tokens=tokens)


class Contender:
    def __init__(self, name, folder, context, threads):
        self.name, self.times, self.tokens = name, [], None
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", name, folder, str(context), str(threads)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
        answer = self.answer()
        self.failed = None if answer.get("ready") else answer.get("why", "its process ended")

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def run(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        answer = self.answer()
        self.times.append(answer["ms"])
        self.tokens = answer["tokens"]


def main():
    if sys.argv[1:2] == ["--worker"]:
        _, _, name, folder, context, threads = sys.argv
        return work(name, folder, int(context), int(threads))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=512, help="tokens before the first that is timed")
    parser.add_argument("--tokens", type=int, default=10, help="tokens that a contender decodes a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default=",".join(CONTENDERS), help="contenders, by name")
    parser.add_argument("--folder", help="where to keep the model between runs")
    arguments = parser.parse_args()

    import environment

    environment.use_best_python()
    from qkv import _core

    with tempfile.TemporaryDirectory() as own:
        folder = arguments.folder or own
        if not (Path(folder) / "model.safetensors").exists():
            Path(folder).mkdir(parents=True, exist_ok=True)
            make_model(folder)
        contenders = []
        for name in arguments.only.split(","):
            contender = Contender(name, folder, arguments.context, arguments.threads)
            if contender.failed:
                print(f"{name}: left out: {contender.failed}", file=sys.stderr)
            else:
                contenders.append(contender)
        bandwidths = []
        for _ in range(arguments.rounds):
            bandwidths.append(_core.bandwidth_probe(arguments.threads))
            for contender in contenders:
                contender.run(arguments.tokens)
        for contender in contenders:
            contender.process.stdin.close()
            contender.process.wait()
    report(arguments, contenders, bandwidths)


def report(arguments, contenders, bandwidths):
    d, layers = SMALL["n_embd"], SMALL["n_layer"]
    weights = 4 * (12 * d * d * layers + SMALL["vocab_size"] * d)
    cache = 4 * 2 * layers * d * (arguments.context + arguments.tokens // 2)
    bandwidth = statistics.median(bandwidths)
    least = (weights + cache) / bandwidth / 1e6
    print(f"a step reads {weights / 1e6:.0f} MB of weights and {cache / 1e6:.0f} MB of cache; "
          f"{bandwidth:.1f} GB/s measured: {least:.2f} ms at least")
    ours = next((c for c in contenders if c.name == "qkv"), contenders[0])
    print(f"{'':10}{'ms/token':>10}{'tokens/s':>10}{'% of bandwidth':>16}{'qkv is':>9}")
    for contender in contenders:
        ms = statistics.median(contender.times)
        same = "" if contender.tokens == ours.tokens else "   other tokens!"
        print(f"{contender.name:10}{ms:10.2f}{1000 / ms:10.1f}{100 * least / ms:16.0f}"
              f"{ms / statistics.median(ours.times):8.2f}×{same}")


main()
