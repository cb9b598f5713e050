#!/usr/bin/env python3
"""Triton's linear layouts against `tilewright layout`.

Reads the lines of triton_facts.py (or runs it), asks the calculator the same
questions, and compares bases exactly, dimension by dimension:

    python triton_compare.py --tilewright path/to/tilewright facts.jsonl ...
    python triton_compare.py --python path/to/python-with-triton --seed 1 --cases 250

What is known to differ is counted under its own heading:

- order: Triton's products merge the orders of dimensions, ours puts those of
  the first operand first. The maps are the same.
- identity: Triton's invertAndCompose maps an input that both layouts have
  alike to itself; ours always takes the first independent columns. Both are
  solutions, and each is the one that its rule gives, which is checked.
- blocks: our families have no input `block`. Families are compared on the
  part of one block; what must be true of the block bases is Triton's affair.
- zero registers: an mfma layout over several blocks repeats up to the shape of
  all of them, so that Triton has further registers that are zero.

A refusal on both sides agrees. Ends with status 1 where anything else differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections import Counter, defaultdict

import triton_model as model

HERE = pathlib.Path(__file__).parent


# ------------------------------------------------------------ asking

def text_of(layout):
    outs = layout["out"]

    def vector(basis):
        return str(basis[0]) if len(outs) == 1 else "(" + ",".join(map(str, basis)) + ")"

    ins = "; ".join(f"{n}: " + " ".join(map(vector, bases)) for n, bases in layout["in"])
    return f"([{ins}] -> [{', '.join(f'{n}:{s}' for n, s in outs)}])"


def list_of(numbers):
    return "(" + ",".join(map(str, numbers)) + ")"


def next_power(n):
    return 1 << max(n - 1, 0).bit_length()


def grid_of(p):
    bases = p["reg_bases"] + p["warp_bases"]
    sizes = [next_power(1 + max((b[d] for b in bases), default=0)) for d in range(2)]
    return text_of({"in": [["register", p["reg_bases"]], ["warp", p["warp_bases"]]],
                    "out": [[f"dim{d}", s] for d, s in enumerate(sizes)]})


def blocks_of(p, rank):
    """The block bases of a family, over the dims of a tensor of this rank."""
    if p["kind"] == "slice":
        return [b[:p["dim"]] + b[p["dim"] + 1:] for b in blocks_of(p["parent"], rank + 1)]
    if p["kind"] == "dot":
        k = rank - 1 if p["operand"] == 0 else rank - 2
        cga = blocks_of(p["parent"], rank)
        return cga if p["parent"]["kind"] == "mfma" else model.without(cga, k)
    return p["cga"]


def question(p, shape):
    """The expression whose value is the family on the part of one block."""
    kind = p["kind"]
    if kind == "slice":
        d = p["dim"]
        return f"sliced({question(p['parent'], shape[:d] + [1] + shape[d:])}, {d})"
    inner = list_of(model.inner_shape(blocks_of(p, len(shape)), shape))
    parent = p.get("parent", p)
    if parent["kind"] == "blocked":
        parts = ", ".join(list_of(parent[n]) for n in
                          ("size_per_thread", "threads_per_warp", "warps_per_cta", "order"))
        if kind == "blocked":
            return f"blocked({parts}, {inner})"
        return f"blocked_operand({p['operand']}, {parts}, {inner})"
    if parent["kind"] == "mma":
        warps = list_of(parent["warps_per_cta"])
        if parent["version"][0] == 2:
            if kind == "mma":
                return f"mma({warps}, {inner})"
            return f"mma_operand({p['operand']}, {p['k_width']}, {warps}, {inner})"
        if kind == "mma":
            return f"wgmma({parent['instr_shape'][1]}, {warps}, {inner})"
        return f"wgmma_left({p['k_width']}, {warps}, {inner})"
    if parent["kind"] == "mfma":
        wide = int(parent["element_bits"] == 64)
        parts = (f"{list_of(parent['instr_shape'][:2])}, {int(parent['transposed'])}, {wide}, "
                 f"{list_of(parent['tiles_per_warp'])}, {list_of(parent['warps_per_cta'])}, {inner}")
        if kind == "mfma":
            return f"mfma({parts})"
        return f"mfma_operand({p['operand']}, {p['k_width']}, {parts})"
    if parent["kind"] == "wmma":
        parts = f"{parent['version']}, {int(parent['transposed'])}, {grid_of(parent)}, {inner}"
        if kind == "wmma":
            return f"wmma({parts})"
        return f"wmma_operand({p['operand']}, {p['k_width']}, {parent['instr_shape'][2]}, {parts})"
    if kind == "swizzled_shared":
        return (f"swizzled({p['vec']}, {p['per_phase']}, {p['max_phase']}, "
                f"{list_of(p['order'])}, {inner})")
    if kind == "nvmma_shared":
        return (f"nvmma({p['swizzle_bytes']}, {p['element_bits']}, {int(p['transposed'])}, "
                f"{int(p['fp4_padded'])}, {inner})")
    raise ValueError(kind)


def questions(case):
    op = case["op"]
    if op == "family":
        return [question(case["params"], case["shape"])]
    a = text_of(case["a"])
    if op == "apply":
        facts = [f"{f}({a})" for f in ("surjective", "injective", "bijective")]
        points = [f"{a}([{', '.join(f'{n}:{i}' for n, i in p.items())}])"
                  for p, _ in case["result"]["points"]]
        return [a] + facts + points
    if op == "invert":
        return [f"inverse({a})"]
    if op == "pseudoinvert":
        return [f"right_inverse({a})"]
    b = text_of(case["b"])
    return [{"compose": f"compose({b}, {a})", "product": f"product({a}, {b})",
             "invert_and_compose": f"invert_and_compose({b}, {a})"}[op]]


def ask(command, lines):
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(lines):
        sys.exit(f"{len(answers)} answers to {len(lines)} questions: {done.stderr[-500:]}")
    return answers


# --------------------------------------------------------- comparing

def layout_of(answer):
    """Our JSON as Triton's; None for a refusal."""
    if "bases" not in answer:
        return None
    return {"in": [[n, answer["bases"][n]] for n, _ in answer["ins"]],
            "out": [list(d) for d in answer["outs"]]}


def reordered(layout, like):
    """With dims in the order of another layout, if it has the same."""
    outs, ins = [n for n, _ in like["out"]], [n for n, _ in like["in"]]
    if sorted(outs) != sorted(n for n, _ in layout["out"]) or \
            sorted(ins) != sorted(n for n, _ in layout["in"]):
        return layout
    layout = model.transposed_outs(layout, outs)
    bases = dict(layout["in"])
    return {"in": [[n, bases[n]] for n in ins], "out": layout["out"]}


def one_block(layout, inner):
    """A family of Triton's without its block bases, on the part of one block."""
    return {"in": [d for d in layout["in"] if d[0] != "block"],
            "out": [[n, i] for (n, _), i in zip(layout["out"], inner)]}


def without_zero_registers(layout):
    return {"in": [[n, [b for b in bs if n != "register" or any(b)]] for n, bs in layout["in"]],
            "out": layout["out"]}


def family_verdict(case, answer):
    theirs = None if "error" in case["result"] else case["result"]
    ours = layout_of(answer)
    if theirs is None or ours is None:
        return "agree" if theirs is ours else "DISAGREE"
    rank = len(case["shape"])
    cga = blocks_of(case["params"], rank)
    theirs = one_block(theirs, model.inner_shape(cga, case["shape"]))
    many = any(any(b) for b in cga)
    if ours == theirs:
        return "agree on one block" if many else "agree"
    if many and without_zero_registers(ours) == without_zero_registers(theirs):
        return "zero registers"
    return "DISAGREE"


def verdict(case, answers):
    op = case["op"]
    if op == "family":
        return family_verdict(case, answers[0])
    result = case["result"]
    if op == "apply":
        layout, *facts = answers
        flags = [f.get("value") for f in facts[:3]]
        points = []
        for (_, theirs), found in zip(result["points"], facts[3:]):
            value = found.get("value")
            ours = dict(value) if isinstance(value, list) else {n: value for n in theirs}
            points.append(ours == theirs)
        columns = model.flat_columns(layout_of(layout))
        height = sum(model.log2(s) for _, s in layout["outs"])
        matrix = [[c >> r & 1 for c in columns] for r in range(height)]
        same = flags == [result[f] for f in ("surjective", "injective", "invertible")]
        return "agree" if same and all(points) and matrix == result["matrix"] else "DISAGREE"
    theirs = None if "error" in result else result
    ours = layout_of(answers[0])
    if ours == theirs:
        return "agree" if theirs else "agree to refuse"
    if theirs is None or ours is None:
        return "DISAGREE"
    if op == "product" and reordered(ours, theirs) == theirs:
        return "order"
    if op == "invert_and_compose":
        a = case["a"]
        names = [n for n, _ in a["out"]]
        b = model.transposed_outs(case["b"], names)
        solved = [model.compose(c, b)["in"] == a["in"] for c in (ours, theirs)]
        by_rules = ours == model.solve_without(a, b, []) and theirs == model.invert_and_compose(a, b)
        if all(solved) and by_rules:
            return "identity"
    return "DISAGREE"


def heading(case):
    if case["op"] != "family":
        return case["op"]
    return case["family"]


def cases_of(args):
    if args.facts:
        for name in args.facts:
            with open(name) as lines:
                yield from map(json.loads, lines)
        return
    for kinds in ("algebra", "families"):
        command = [args.python, str(HERE / "triton_facts.py"), "--kinds", kinds,
                   "--seed", str(args.seed), "--cases", str(args.cases)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        yield from map(json.loads, done.stdout.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("facts", nargs="*", help="lines of triton_facts.py; run it if none are given")
    parser.add_argument("--tilewright", default="tilewright", help="the program to ask")
    parser.add_argument("--python", default=sys.executable, help="a Python that has Triton")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=250)
    args = parser.parse_args()
    cases = list(cases_of(args))
    asked = [questions(case) for case in cases]
    answers = iter(ask([args.tilewright, "layout", "-", "--json"], [q for qs in asked for q in qs]))
    table = defaultdict(Counter)
    shown = Counter()
    for case, qs in zip(cases, asked):
        found = [next(answers) for _ in qs]
        what = verdict(case, found)
        table[heading(case)][what] += 1
        if what == "DISAGREE" and shown[heading(case)] < 3:
            shown[heading(case)] += 1
            print(f"DISAGREE {heading(case)}: {qs[0]}\n  triton {json.dumps(case['result'])}\n"
                  f"  ours   {json.dumps(found[0])}")
    print("| operation or family | cases | agree | known differences | disagree |")
    print("| --- | --- | --- | --- | --- |")
    wrong = 0
    for name, counts in table.items():
        agree = sum(n for what, n in counts.items() if what.startswith("agree"))
        known = ", ".join(f"{what} {n}" for what, n in sorted(counts.items())
                          if not what.startswith("agree") and what != "DISAGREE")
        wrong += counts["DISAGREE"]
        print(f"| {name} | {sum(counts.values())} | {agree} | {known} | {counts['DISAGREE']} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
