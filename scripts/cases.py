"""Programs of the tests with their sizes, for the scripts that run them all."""

import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases():
    """(file, words) of each `// run:` line of tests/run and each line of tests/examples.txt."""
    for path in sorted((ROOT / "tests" / "run").glob("*.tile")):
        for line in path.read_text().splitlines():
            if line.startswith("// run:"):
                yield path, values(line.removeprefix("// run:"))
    examples = {path.stem: path for path in (ROOT / "examples").rglob("*.tile")}
    for example, words in lines_of("examples.txt"):
        yield examples[example], values(words)


def values(case):
    """The words of a case without the last one of those that the tests leave to their nightly form."""
    words = case.split()
    return words[:-1] if words[-1:] == ["nightly"] else words


def named_operators():
    """(operator, its parameters, words) of each line of tests/operators.txt."""
    for named, words in lines_of("operators.txt"):
        operator, *parameters = named.split()
        yield operator, parameters, words.split()


def operators(binary, folder):
    """(file, words) of each program of each line of tests/operators.txt; the programs are written to a folder."""
    for at, (operator, parameters, words) in enumerate(named_operators()):
        for step, text in programs(binary, operator, parameters):
            name = "-".join([operator, *parameters, f"{at}.{step}"]).replace("/", "÷")
            path = pathlib.Path(folder, f"{name}.tile")
            path.write_text(text)
            yield path, words_of(words, text)


def programs(binary, operator, parameters):
    """(number from 1 on, text) of each program of an operator with these parameters."""
    given = [word for parameter in parameters for word in ("-p", parameter)]
    step, count = 1, 1
    while step <= count:
        done = subprocess.run([binary, "kernels", operator, *given, "--step", str(step)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{operator} {' '.join(parameters)}: {done.stderr}")
        several = re.search(r"program \d+ of (\d+)", done.stderr)
        count = int(several[1]) if several else 1
        yield step, done.stdout
        step += 1


def parameters_for(binary, operator, parameters, sizes, device=()):
    """The parameters that an operator takes at these sizes (`m=16 n=4096`) where some are given; those alone, if it has nothing to choose."""
    given = [word for parameter in parameters for word in ("-p", parameter)]
    command = [binary, "kernels", operator, *given, "--for", ",".join(sizes), "--config-only", *device]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "has no tuning space" not in done.stderr:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    chosen = dict(parameter.split("=", 1) for parameter in [*parameters, *done.stdout.split()])
    return [f"{name}={value}" for name, value in chosen.items() if value != "default"]


def words_of(words, program):
    """The words that concern a program: those of its own sizes and inputs."""
    sizes = set(re.findall(r"(\w+) *=", " ".join(re.findall(r"^size (.*)$", program, re.M))))
    tensors = set(re.findall(r"(\w+): \w+\[", program))
    known = lambda name, value: value.partition("=")[0] in tensors if name == "--input" else name.startswith("--") or name in ("arch", "seed", "conflicts") or name in sizes
    return [word for word in words if known(*word.partition("=")[::2])]


def arguments(words):
    """Arguments of `run` of the words of a case: `m=100 seed=1 --machine sm_90a`."""
    given = []
    for word in words:
        name, _, value = word.partition("=")
        if word.startswith("--"):
            given.append(word)
        elif name in ("arch", "seed"):
            given += [f"--{name}", value]
        elif name != "conflicts":
            given += ["-p", word]
    return given


def title(path, words):
    """Name of a case for people."""
    return f"{path.stem} {shlex.join(words)}"


def lines_of(name):
    """(text before the colon, text behind it) of each line of a list in tests."""
    for line in (ROOT / "tests" / name).read_text().splitlines():
        # A colon in a parameter has something right behind it.
        before, *behind = re.split(r":(?=\s|$)", line, maxsplit=1)
        if behind and not line.startswith("#"):
            yield before.strip(), behind[0].strip()
