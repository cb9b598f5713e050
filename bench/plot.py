#!/usr/bin/env python3
"""Pictures and tables of what bench/gemm.py measured: ratio to cuBLAS by shape. Needs nothing but Python.

    python3 bench/plot.py rows.jsonl --title "f16, H200" --out docs/plots/gemm-f16.svg
    python3 bench/plot.py rows.jsonl --series peer --condition rested --out docs/plots/gemm-f16-peers.svg
    python3 bench/plot.py rows.jsonl --table

Of several configurations of a shape the one that was fastest under the first condition is taken, for all conditions. The same lines give the
same bytes.
"""

import argparse
import html
import json
import math
import pathlib
import statistics

CONDITIONS = ["rested", "clean", "sustained"]
NAMES = {"rested": "rested", "clean": "clean L2", "sustained": "sustained", "ours": "Tilewright", "triton": "Triton", "deepgemm": "DeepGEMM"}
ROW, GROUP, LEFT, WIDTH, TOP = 17, 26, 178, 560, 68
STYLE = """
  .page{fill:#fff} text{font:12px system-ui,sans-serif;fill:#1f2328} .quiet{fill:#59636e} .title{font-size:14px;font-weight:600}
  .group{font-weight:600} .grid{stroke:#d1d9e0;stroke-width:1} .one{stroke:#1f2328;stroke-width:1.5}
  .s0{fill:#0072b2} .s1{fill:#d55e00} .s2{fill:#009e73} .s3{fill:#a04080} .mean{stroke-width:2;fill:none}
  .mean.s0{stroke:#0072b2} .mean.s1{stroke:#d55e00} .mean.s2{stroke:#009e73} .mean.s3{stroke:#a04080}
  @media(prefers-color-scheme:dark){
    .page{fill:#0d1117} text{fill:#f0f6fc} .quiet{fill:#9198a1} .grid{stroke:#3d444d} .one{stroke:#f0f6fc}
    .s0{fill:#56b4e9} .s1{fill:#f0a04b} .s2{fill:#3ddc97} .s3{fill:#e29ac8}
    .mean.s0{stroke:#56b4e9} .mean.s1{stroke:#f0a04b} .mean.s2{stroke:#3ddc97} .mean.s3{stroke:#e29ac8}
  }"""


def geomean(values):
    """Geometric mean."""
    return math.exp(statistics.mean(map(math.log, values)))


def rows_of(files):
    """The measured lines of files."""
    rows = [json.loads(line) for file in files for line in pathlib.Path(file).read_text().splitlines() if line.strip()]
    return [row for row in rows if "ms" in row]


def against(row, base):
    """Milliseconds of what a row is compared with: a peer by name, or else the row's fastest cuBLAS."""
    name = base or row.get("base")
    return row["peers"][name]["ms"] if name in row["peers"] else None


def by_shape(rows, base=None):
    """Rows by shape and condition: of each shape the configuration that was fastest under its first condition."""
    shapes = {}
    for row in rows:
        if against(row, base):
            shapes.setdefault(tuple(row["shape"]), {}).setdefault(row["config"], {})[row["condition"]] = row
    found = {}
    for shape, configs in shapes.items():
        has = {condition for each in configs.values() for condition in each}
        first = next(condition for condition in CONDITIONS if condition in has)
        found[shape] = min((each for each in configs.values() if first in each), key=lambda each: each[first]["ms"])
    return found


def values_by_series(shapes, series, condition, base):
    """{series: {shape: ratio}}: ours by condition, or under one condition ours and those peers that are not cuBLAS."""
    if series == "condition":
        values = {c: {s: against(each[c], base) / each[c]["ms"] for s, each in shapes.items() if c in each} for c in CONDITIONS}
        return {name: of for name, of in values.items() if of}
    values = {"ours": {}}
    for shape, each in shapes.items():
        row = each.get(condition)
        if row:
            whole = against(row, base)
            values["ours"][shape] = whole / row["ms"]
            for name, peer in row["peers"].items():
                if name not in ("torch", "cublaslt", "cublaslt fast", base):
                    values.setdefault(name, {})[shape] = whole / peer["ms"]
    return {name: of for name, of in values.items() if of}


def mark(kind, x, y):
    """A point, whose form also says which series it is of."""
    if kind == 0:
        return f'<circle class="s0" cx="{x:.1f}" cy="{y:.1f}" r="4">'
    if kind == 1:
        return f'<rect class="s1" x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4">'
    up = 4.6 if kind == 2 else -4.6
    return f'<path class="s{kind}" d="M{x:.1f} {y - up:.1f}l4.4 {1.6 * up:.1f}h-8.8z">'


def close(shape):
    """The element's end that belongs to mark."""
    return {"<c": "</circle>", "<r": "</rect>", "<p": "</path>"}[shape[:2]]


def times(shape):
    """A shape in words."""
    return "×".join(map(str, shape))


def svg(values, title, said):
    """A picture: a row for each shape, grouped by m, a point for each series, a line at 1.0, and the geometric means below."""
    shapes = sorted({shape for of in values.values() for shape in of}, key=lambda s: (s[-3], s[:-3], s[-2], s[-1]))
    ratios = [ratio for of in values.values() for ratio in of.values()]
    step = 0.05 if max(ratios) - min(ratios) < 0.6 else 0.1 if max(ratios) - min(ratios) < 1.2 else 0.25
    low = min(math.floor(min(ratios) / step + 1e-9) * step, 1 - step)
    high = max(math.ceil(max(ratios) / step - 1e-9) * step, 1 + step)
    lines, y = [], TOP + 14

    def at(ratio):
        return LEFT + (ratio - low) / (high - low) * WIDTH

    places, last = [], None
    grouped = len({shape[-3] for shape in shapes}) < len(shapes)
    for shape in shapes:
        if grouped and shape[-3] != last:
            y += 4 if last is None else GROUP - ROW + 2
            lines.append(f'<text class="group" x="14" y="{y + 4}">m = {shape[-3]}</text>')
            y += ROW
            last = shape[-3]
        places.append((shape, y))
        y += ROW
    bottom = y - 2
    height = bottom + 24 + 18 * len(values) + 12
    for i in range(round((high - low) / step) + 1):
        ratio = low + i * step
        one = abs(ratio - 1) < 1e-9
        lines.append(f'<path class="{"one" if one else "grid"}" d="M{at(ratio):.1f} {TOP}V{bottom}"/>')
        lines.append(f'<text class="quiet" text-anchor="middle" x="{at(ratio):.1f}" y="{TOP - 6}">{ratio:.2f}</text>')
    for shape, y in places:
        lines.append(f'<text text-anchor="end" x="{LEFT - 12}" y="{y + 4}">{times(shape)}</text>')
        for kind, (name, of) in enumerate(values.items()):
            if shape in of:
                point = mark(kind, at(of[shape]), y)
                lines.append(f"{point}<title>{times(shape)}, {html.escape(NAMES.get(name, name))}: {of[shape]:.3f}</title>{close(point)}")
    y = bottom + 24
    for kind, (name, of) in enumerate(values.items()):
        mean, worst = geomean(of.values()), min(of.values())
        lines.append(f'<path class="mean s{kind}" d="M{at(mean):.1f} {TOP}V{bottom}" stroke-dasharray="2 4"/>')
        point = mark(kind, 20, y - 4)
        lines.append(f"{point}{close(point)}")
        large = [ratio for shape, ratio in of.items() if shape[-3] >= 1024]
        extra = f", {geomean(large):.3f} for m ≥ 1024" if 0 < len(large) < len(of) else ""
        lines.append(
            f'<text x="34" y="{y}">{html.escape(NAMES.get(name, name))}: geometric mean {mean:.3f}{extra}, least {worst:.3f} ({len(of)} shapes)</text>'
        )
        y += 18
    whole = LEFT + WIDTH + 28
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{height}" viewBox="0 0 {whole} {height}" role="img">\n'
        f"<title>{html.escape(title)}</title>\n<desc>{html.escape(said)}</desc>\n<style>{STYLE}\n</style>\n"
        f'<rect class="page" width="{whole}" height="{height}"/>\n<text class="title" x="14" y="22">{html.escape(title)}</text>\n'
        f'<text class="quiet" x="14" y="40">{html.escape(said)}</text>\n{body}\n</svg>\n'
    )


def table(shapes, base):
    """A Markdown table: time, throughput and ratio under each condition, a row a shape, and the means."""
    has = [c for c in CONDITIONS if any(c in each for each in shapes.values())]
    lines = ["| m×n×k | configuration | " + " | ".join(f"{NAMES[c]}: ms | TFLOP/s | ratio" for c in has) + " |"]
    lines.append("| --- | --- |" + " ---: |" * (3 * len(has)))
    ratios = {c: {} for c in has}
    for shape, each in shapes.items():
        cells = []
        for c in has:
            row = each.get(c)
            if row is None:
                cells += ["", "", ""]
                continue
            ratios[c][shape] = against(row, base) / row["ms"]
            cells += [f"{row['ms']:.4f}", f"{row['tflops']:.0f}", f"{ratios[c][shape]:.3f}"]
        config = next(iter(each.values()))["config"]
        lines.append(f"| {times(shape)} | {f'`{config}`' if config else 'default'} | {' | '.join(cells)} |")
    for what, keep in (("geometric mean", lambda s: True), ("geometric mean, m ≥ 1024", lambda s: s[-3] >= 1024)):
        means = [[ratio for shape, ratio in ratios[c].items() if keep(shape)] for c in has]
        if all(means) and (keep((0, 0, 0)) or len(means[0]) < len(ratios[has[0]])):
            lines.append(f"| {what} | | " + " | ".join(f" | | **{geomean(of):.3f}**" for of in means) + " |")
    lines.append("| least | | " + " | ".join(f" | | {min(ratios[c].values()):.3f}" for c in has) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", help="files of lines that bench/gemm.py --json wrote")
    parser.add_argument("--out", type=pathlib.Path, help="the SVG file")
    parser.add_argument("--title", default="Matrix products beside cuBLAS")
    parser.add_argument("--series", default="condition", choices=["condition", "peer"], help="what points of a row differ by")
    parser.add_argument("--condition", default="rested", choices=CONDITIONS, help="with --series peer")
    parser.add_argument("--base", help="compare with this peer instead of the fastest cuBLAS, e.g. triton")
    parser.add_argument("--dtype", help="only rows of this type")
    parser.add_argument("--set", help="only rows of this set")
    parser.add_argument("--table", action="store_true", help="print a Markdown table")
    args = parser.parse_args()
    rows = [r for r in rows_of(args.rows) if args.dtype in (None, r["dtype"]) and args.set in (None, r["set"])]
    shapes = by_shape(rows, args.base)
    values = values_by_series(shapes, args.series, args.condition, args.base) if shapes else {}
    if not values:
        raise SystemExit("nothing to show: no measured rows with what they are compared with")
    if args.table:
        print(table(shapes, args.base))
    if args.out:
        other = NAMES.get(args.base, args.base) or "the fastest cuBLAS"
        said = f"time of {other} over ours; right of 1.00: ours is faster"
        if args.series == "peer":
            said = f"time of {other} over each one's, {NAMES[args.condition]}; right of 1.00: faster"
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(svg(values, args.title, said))


if __name__ == "__main__":
    main()
