"""All contenders on one problem, in rounds: each runs once a round, between two probes.

A sample counts only if both probes beside it saw an undisturbed machine. Contenders are processes of
their own (worker.py), of which one runs at a time.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from qkv import _core

UNDISTURBED = 0.85  # of the run's best probe
SETTLE = 0.02  # seconds that idle threads of the last contender may still spin
SAMPLE = 0.04  # seconds that a sample takes at least, by repetition


class Contender:
    """A library, behind its pipe."""

    def __init__(self, library, threads, target):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TF_CPP_MIN_LOG_LEVEL="2")
        if target:
            environment["QKV_TARGET"] = target
        self.library = library
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), library, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, do, **arguments):
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self.library}: its process ended (exit code {self.process.wait()})")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Probes:
    """What the machine could do beside each sample."""

    def __init__(self, threads, target):
        self.threads, self.target = threads, target or ""
        self.fma, self.bandwidth = [], []

    def measure(self):
        time.sleep(SETTLE)
        now = (_core.fma_probe(self.threads, self.target), _core.bandwidth_probe(self.threads))
        self.fma.append(now[0])
        self.bandwidth.append(now[1])
        return now

    @staticmethod
    def best(values):
        """Nearly the best of all: one lucky measurement should not condemn the rest."""
        return sorted(values)[int(0.95 * (len(values) - 1))]

    def peak(self):
        return self.best(self.fma), self.best(self.bandwidth)

    def share_of_cores(self):
        """What all threads reach, of as many times what one reaches: near 1 on a machine of one's own."""
        alone = max(_core.fma_probe(1, self.target) for _ in range(5))
        return self.best(self.fma) / (alone * self.threads)

    def undisturbed(self, before, after):
        fma, _ = self.peak()
        return min(before[0], after[0]) >= UNDISTURBED * fma


def prepare(problem, contenders, quick, log):
    """{(library, variant): result so far}; a library that failed is reported and left out."""
    results = {}
    shape = {name: value for name, value in vars(problem).items() if name not in ("Hq", "Hkv")}
    for contender in list(contenders):
        try:
            answers = contender.ask("prepare", shape=shape, quick=quick)
        except RuntimeError as error:
            log(f"  {error}")
            contenders.remove(contender)
            continue
        for variant, answer in answers.items():
            results[contender.library, variant] = {**answer, "samples": []}
    return results


def compare_outputs(contenders, results):
    """Each peer's whole output against ours, if we are there."""
    if ("qkv", "fused") not in results:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "ours.npy")
        by_name = {contender.library: contender for contender in contenders}
        by_name["qkv"].ask("save", variant="fused", path=path)
        for (library, variant), result in results.items():
            if "seconds" in result and library != "qkv":
                result.update(by_name[library].ask("difference", variant=variant, path=path))


def worth_sampling(results):
    """Variants within reach of their library's best one, by the first measurement."""
    best = {}
    for (library, _), result in results.items():
        if "seconds" in result and not result["wrong"]:
            best[library] = min(best.get(library, 1e9), result["seconds"])
    return [key for key, result in results.items()
            if "seconds" in result and not result["wrong"] and result["seconds"] < 1.6 * best[key[0]]]


def sample(contenders, results, chosen, probes, rounds, budget):
    """Fills results[…]["samples"] with (seconds, probe before, probe after)."""
    by_name = {contender.library: contender for contender in contenders}
    for library, contender in by_name.items():
        contender.ask("keep", variants=[variant for name, variant in chosen if name == library])
    before = probes.measure()
    for turn in range(rounds):
        start = turn % len(chosen)
        for library, variant in chosen[start:] + chosen[:start]:
            result = results[library, variant]
            if len(result["samples"]) >= 3 and result.get("spent", 0) > budget:
                continue  # slow: the others go on without it
            times = max(2 if variant == "throughput" else 1, int(SAMPLE / result["seconds"]))
            seconds = by_name[library].ask("run", variant=variant, times=times)["seconds"]
            after = probes.measure()
            result["samples"].append((seconds, before, after))
            result["spent"] = result.get("spent", 0) + seconds * times
            before = after


def summarise(results, probes):
    """Samples become a median; too few undisturbed ones, and all count, with a mark."""
    for result in results.values():
        samples = result.pop("samples", [])
        result.pop("spent", None)
        if not samples:
            continue
        good = [seconds for seconds, before, after in samples if probes.undisturbed(before, after)]
        result["count"], result["dropped"] = len(samples), len(samples) - len(good)
        result["noisy"] = len(good) < 3
        result["seconds"] = statistics.median(good if len(good) >= 3 else [s[0] for s in samples])
        result["fastest"] = min(s[0] for s in samples)
        result["sampled"] = True


def measure(problem, contenders, probes, rounds, budget, quick, log):
    """{library: {variant: result}} of one problem."""
    results = prepare(problem, contenders, quick, log)
    compare_outputs(contenders, results)
    chosen = worth_sampling(results)
    if chosen:
        sample(contenders, results, chosen, probes, rounds, budget)
    summarise(results, probes)
    for contender in contenders:
        contender.ask("forget")
    tree = {}
    for (library, variant), result in results.items():
        tree.setdefault(library, {})[variant] = result
    return tree


def best_variant(variants):
    """(name, result) of a library's fastest right answer; None if it has none."""
    right = [(result["seconds"], name) for name, result in (variants or {}).items()
             if "seconds" in result and not result["wrong"]]
    if not right:
        return None
    name = min(right)[1]
    return name, variants[name]
