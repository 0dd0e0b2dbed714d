"""Plots as SVG, written by hand: bars, a roofline, and the lines of a sweep."""

import math
from html import escape
from pathlib import Path

from report import TITLES, milliseconds, percent_of_peak
from rounds import best_variant

COLOURS = {"qkv": "#c2410c", "torch": "#475569", "ort": "#0e7490", "openvino": "#6d28d9", "jax": "#4d7c0f"}
STYLE = """text{font:12px system-ui,sans-serif;fill:#1f2937}.t{font-size:15px;font-weight:600}
.s{font-size:11px;fill:#6b7280}.e{text-anchor:end}.m{text-anchor:middle}.g{stroke:#e5e7eb}.a{stroke:#9ca3af}
.l{fill:none;stroke-width:2}"""


class Svg:
    def __init__(self, width, height, title, subtitle):
        self.width, self.height, self.parts = width, height, []
        self.text(16, 24, title, "t")
        self.text(16, 42, subtitle, "s")

    def text(self, x, y, words, style=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, style="a", extra=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}" {extra}/>')

    def bar(self, x, y, width, height, colour, words):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'fill="{colour}"><title>{escape(words)}</title></rect>')

    def dot(self, x, y, colour, words, radius=4):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}">'
                          f"<title>{escape(words)}</title></circle>")

    def path(self, points, colour):
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{text}" class="l" stroke="{colour}"/>')

    def legend(self, libraries, x, y):
        for library in libraries:
            self.bar(x, y - 9, 10, 10, COLOURS[library], TITLES[library])
            self.text(x + 15, y, TITLES[library])
            x += 30 + 7 * len(TITLES[library])

    def save(self, path):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}">\n<style>{STYLE}</style>\n'
                f'<rect width="100%" height="100%" fill="#fff"/>\n')
        Path(path).write_text(head + "\n".join(self.parts) + "\n</svg>\n")


def subtitle(report):
    machine, versions = report["machine"], report["versions"]
    peers = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{machine['cpu']}, {report['threads']} threads, f32; {peers}"


def bars(report, path):
    """% of the FMA peak, a group of bars a shape."""
    libraries, peak = report["libraries"], report["probes"]["fma"]
    left, right, thick, gap, top = 130, 820, 11, 14, 88
    group = thick * len(libraries) + gap
    svg = Svg(900, top + group * len(report["shapes"]) + 30, "Attention, % of the FMA peak (longer is better)",
              subtitle(report))
    svg.legend(libraries, 16, 66)
    bottom = top + group * len(report["shapes"])
    for tick in range(0, 101, 20):
        x = left + (right - left) * tick / 100
        svg.line(x, top - 6, x, bottom, "g")
        svg.text(x, bottom + 16, f"{tick} %", "s m")
    for n, row in enumerate(report["shapes"]):
        y = top + n * group
        svg.text(left - 8, y + thick * len(libraries) / 2 + 4, row["name"], "e")
        for i, library in enumerate(libraries):
            best = best_variant(row["results"].get(library))
            if not best:
                svg.text(left + 4, y + i * thick + 9, "–", "s")
                continue
            name, result = best
            share = percent_of_peak(row, result, peak)
            end = left + (right - left) * min(share, 105) / 100
            words = f"{TITLES[library]} {name}: {milliseconds(result['seconds'])} ms, {share:.0f} %"
            svg.bar(left, y + i * thick, max(1, end - left), thick - 1, COLOURS[library], words)
            svg.text(end + 4, y + i * thick + 9, f"{milliseconds(result['seconds'])} ms", "s")
    svg.save(path)


def log_scale(low, high, begin, end):
    return lambda value: begin + (end - begin) * math.log(value / low) / math.log(high / low)


def decades(low, high):
    tick = 10 ** math.floor(math.log10(low))
    while tick <= high:
        for step in (1, 2, 5):
            if low <= tick * step <= high:
                yield tick * step
        tick *= 10


def grid(svg, x_of, y_of, x_range, y_range, box):
    left, right, top, bottom = box
    for tick in decades(*x_range):
        svg.line(x_of(tick), top, x_of(tick), bottom, "g")
        svg.text(x_of(tick), bottom + 16, f"{tick:g}", "s m")
    for tick in decades(*y_range):
        svg.line(left, y_of(tick), right, y_of(tick), "g")
        svg.text(left - 6, y_of(tick) + 4, f"{tick:g}", "s e")


def roofline(report, path):
    """GFLOP/s over FLOPs a byte that has to move; under the roof of memory and FMA."""
    fma, bandwidth = report["probes"]["fma"], report["probes"]["bandwidth"]
    intensities = [row["flops"] / row["bytes"] for row in report["shapes"]]
    x_range = (min(1.0, *intensities), 2 * max(intensities))
    y_range = (fma / 300, fma * 1.4)
    box = (64, 860, 84, 470)
    x_of, y_of = log_scale(*x_range, box[0], box[1]), log_scale(*y_range, box[3], box[2])
    svg = Svg(900, 510, "Roofline: GFLOP/s over FLOPs per byte", subtitle(report))
    svg.legend(report["libraries"], 16, 66)
    grid(svg, x_of, y_of, x_range, y_range, box)
    ridge = fma / bandwidth
    first = max(x_range[0], y_range[0] / bandwidth)
    svg.path([(x_of(first), y_of(first * bandwidth)), (x_of(ridge), y_of(fma)), (box[1], y_of(fma))], "#111827")
    svg.text(box[1] - 4, y_of(fma) - 6, f"{fma:.0f} GFLOP/s, {report['probes']['target']}", "s e")
    svg.text(x_of(first) + 20, y_of(first * bandwidth) + 4, f"{bandwidth:.0f} GB/s from memory", "s")
    for row, intensity in zip(report["shapes"], intensities):
        for library in report["libraries"]:
            best = best_variant(row["results"].get(library))
            if best:
                rate = row["flops"] / best[1]["seconds"] / 1e9
                svg.dot(x_of(intensity), y_of(max(rate, y_range[0])), COLOURS[library],
                        f"{row['name']}, {TITLES[library]} {best[0]}: {rate:.0f} GFLOP/s")
    svg.text((box[0] + box[1]) / 2, 504, "FLOPs per byte of query, key, value and output", "s m")
    svg.save(path)


def sweep(report, name, path):
    """% of the FMA peak along one dimension."""
    rows = [row for row in report["shapes"] if row["name"].startswith(name + "=")]
    values = [float(row["name"].split("=")[1]) for row in rows]
    box = (64, 860, 84, 400)
    x_of = log_scale(min(values), max(values), box[0] + 8, box[1] - 8)
    y_of = lambda share: box[3] - (box[3] - box[2]) * min(share, 100) / 100  # noqa: E731
    svg = Svg(900, 440, f"% of the FMA peak over {name}", subtitle(report))
    svg.legend(report["libraries"], 16, 66)
    for tick in range(0, 101, 20):
        svg.line(box[0], y_of(tick), box[1], y_of(tick), "g")
        svg.text(box[0] - 6, y_of(tick) + 4, f"{tick} %", "s e")
    for value in values:
        svg.text(x_of(value), box[3] + 16, f"{value:g}", "s m")
    for library in report["libraries"]:
        points = []
        for row, value in zip(rows, values):
            best = best_variant(row["results"].get(library))
            if best:
                share = percent_of_peak(row, best[1], report["probes"]["fma"])
                points.append((x_of(value), y_of(share)))
                svg.dot(*points[-1], COLOURS[library], f"{row['name']}, {TITLES[library]}: {share:.0f} %", 3)
        if points:
            svg.path(points, COLOURS[library])
    svg.save(path)


def draw(report, folder):
    """All plots that the report has data for. Returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if report["sweeps"]:
        paths = [folder / f"sweep-{name}.svg" for name in report["sweeps"]]
        for name, path in zip(report["sweeps"], paths):
            sweep(report, name, path)
        return paths
    bars(report, folder / "bars.svg")
    roofline(report, folder / "roofline.svg")
    return [folder / "bars.svg", folder / "roofline.svg"]
