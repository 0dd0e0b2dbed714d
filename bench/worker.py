"""One library in a process of its own: prepares problems and runs them when told to.

    worker.py LIBRARY THREADS

Reads a JSON object a line, answers with one: {"do": "prepare" | "run" | "forget", …}. Libraries that
print do so to stderr.
"""

import gc
import json
import os
import statistics
import sys
import time
import traceback

import numpy as np

from block_problem import BlockProblem
from peers import Unsupported, module_of
from problem import Problem

# f32 sums of thousands of terms around 1: far above their rounding, far below a wrong result.
TOLERANCE = 1e-3
# Of all numbers together, where weights are stored narrower.
ROUGH = 0.025


def available_bytes():
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62


class Worker:
    def __init__(self, library, threads):
        self.library, self.module = library, module_of(library)
        self.threads = threads
        self.prepared = {}

    def prepare(self, shape, only=None, quick=False, beside=None):
        """Every variant of a problem: {name: {"seconds": one call, "error": …, "wrong": …}}. `beside`: another
        problem, whose only variant gets the name "beside"."""
        self.forget()
        others = {}
        if beside:
            (name, others["beside"]), = self.prepare_variants(beside).items()
            if name in self.prepared:
                self.prepared["beside"] = self.prepared.pop(name)
        return {**self.prepare_variants(shape, only, quick), **others}

    def prepare_variants(self, shape, only=None, quick=False):
        blocks = "kind" in shape
        self.module = module_of(self.library, blocks)
        problem = BlockProblem(**shape) if blocks else Problem(**shape)
        if blocks and problem.storage and self.library != "qkv":
            return {}
        rows = problem.sample_rows()
        expected = problem.expected(rows)
        answers = {}
        for variant in self.module.variants(problem):
            if only and variant.name not in only or quick and variant.slow_start:
                continue
            try:
                answers[variant.name] = self.try_out(variant, problem, rows, expected)
            except Unsupported as reason:
                answers[variant.name] = {"unsupported": str(reason)}
            except Exception as error:  # a peer's own failure is a result, not ours
                text = str(error).strip().splitlines() or [type(error).__name__]
                answers[variant.name] = {"unsupported": text[0][:160]}
                if os.environ.get("QKV_BENCH_VERBOSE"):
                    traceback.print_exc()
            gc.collect()
        return answers

    def try_out(self, variant, problem, rows, expected):
        if variant.materialises and 3 * problem.score_bytes() > available_bytes() // 2:
            raise Unsupported("its matrix of scores does not fit in memory")
        prepared = variant.prepare(problem, self.threads)
        prepared.run(1)
        out = np.asarray(prepared.output())
        got = np.array([out[row] for row in rows])
        error, most = float(np.max(np.abs(got - expected))), TOLERANCE
        if getattr(problem, "storage", None):
            error, most = float(np.linalg.norm(got - expected) / np.linalg.norm(expected)), ROUGH
        self.prepared[variant.name] = prepared
        seconds = min(self.run(variant.name, 2)["seconds"] for _ in range(3))
        return {"seconds": seconds, "error": error, "wrong": not error < most}

    def run(self, variant, times):
        """A sample: the median of its calls, of which a few are always interrupted by somebody else on the machine; the mean
        of a variant that has several under way at once. Threads that have slept may share a core at first, so a part of it
        is run before."""
        begin, worked = time.perf_counter(), time.process_time()
        self.prepared[variant].run(times // 10 or times // 2)
        start = time.perf_counter()
        each = self.prepared[variant].run(times)
        end = time.perf_counter()
        return {"seconds": statistics.median(each) if each else (end - start) / times,
                "lasted": end - begin,
                "worked": time.process_time() - worked}  # of all its threads

    def save(self, variant, path):
        np.save(path, self.prepared[variant].output())
        return {}

    def difference(self, variant, path):
        """How far the output is from the saved one."""
        ours = np.load(path, mmap_mode="r")
        return {"difference": float(np.max(np.abs(self.prepared[variant].output() - ours)))}

    def keep(self, variants):
        self.prepared = {name: self.prepared[name] for name in variants}
        gc.collect()
        return {}

    def forget(self):
        self.prepared = {}
        gc.collect()
        return {}

    def versions(self):
        return self.module.versions()


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    threads = int(sys.argv[2])
    if threads < len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    worker = Worker(sys.argv[1], threads)
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(worker, command.pop("do"))(**command)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
