"""The builder of kernels in Python: it runs a function once and records the statements as a text of the tile language.

The text is parsed by the ordinary parser, and each of its lines knows the Python expression that wrote it (`Sources::written_for` of the
compiler), so that a message shows the author's own file. So every statement of the language is here at once, by the compiler's table
of its words, and a new one needs nothing.
"""

from __future__ import annotations

import inspect
import keyword
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _core
from .errors import CompileError
from .places import Place, author, names_at, place_of
from .types import DTYPES, DType, TensorType, _Kind, const, size
from .values import Buffer, Tensor, Value, literal, wrong_at

_WORDS = dict(_core.words())
# Words that are no names in Python, or hold a dot, by the names that they have here.
_SPELLED = {"print_": "print", "assert_": "assert", "copy_async": "copy.async", "gemm_async": "gemm.async"}
# Calls of which an argument is text in quotes, by its place.
_QUOTED = {"print": 0, "assert": 1, "asm": 0}
# Values that are made at once, not where they are used: what they make has a name, or they change memory.
_MADE = {"register_tensor", "shared_tensor", "tensor_memory", "pipeline", "named_barrier", "turns"}
# Names of what is given to no variable at once.
_UNNAMED = {"register_tensor": "r", "shared_tensor": "s", "tensor_memory": "acc", "named_barrier": "barrier", "turns": "order"}
_ATOMIC = {name for name in _WORDS if name.startswith("atomic_")}
# Calls that change none of their tensors.
_READERS = {"print", "assert"}


class Line:
    """A line of the text: pieces of text and values, and the place that wrote it."""

    def __init__(self, place: Place, pieces: list[Any], before: str = "", behind: str = "") -> None:
        self.place: Place = place
        self.pieces: list[Any] = pieces
        self.before: str = before
        self.behind: str = behind

    def text(self) -> str:
        pieces = (piece if isinstance(piece, str) else piece._text(True) for piece in self.pieces)
        return self.before + "".join(pieces) + self.behind


class Block:
    """Statements in braces, behind a head."""

    def __init__(self, head: Line) -> None:
        self.head = head
        self.items: list[Any] = []
        #: A block that goes on behind the brace, `else` or `drain`.
        self.then: Block | None = None


class Builder:
    """The kernel that is being built. Every function and statement of the tile language is a method, e.g. ``t.copy(src, dst)``,
    ``t.exp(x)``, ``t.reduce(x, "max", 1, keep=True)``, ``t.copy_async(src, dst)``: words are strings or keywords that are true."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._blocks = [Block(Line(Place("", (1, 0), (1, 0)), []))]
        self._sequence = 0
        self._names: set[str] = set()
        self._head: dict[str, Line] = {}
        self._functions: dict[Callable[..., Any], tuple[str, list[Any], Block]] = {}
        #: A tensor or a part of one that an operator like `+=` has just changed.
        self._updated: Value | None = None
        self._left: CompileError | None = None

    # Recording.

    def _now(self) -> int:
        self._sequence += 1
        return self._sequence

    def _record(self, value: Value) -> tuple[Block, int]:
        """Notes where a value is made, and the place that makes it."""
        frame = author()
        value._place = place_of(frame)
        value._wanted = names_at(frame)
        block = self._blocks[-1]
        block.items.append(value)
        return block, self._now()

    def _wrong(self, message: str, help: str, place: Place | None = None) -> CompileError:
        place = place or place_of(author())
        line, byte = place.start
        text = linecache.getline(place.file, line)
        column = len(text.encode()[:byte].decode(errors="replace")) + 1
        return wrong_at(place.file, line, column, text, message, help)

    def _name(self, wanted: tuple[str, ...] | str, otherwise: str) -> str:
        """A name that nothing has yet, the wanted one if it can be."""
        first = wanted if isinstance(wanted, str) else wanted[0] if wanted else otherwise
        base = first if first.isascii() and first.isidentifier() and not first.startswith("_") else otherwise
        name, number = base, 1
        while name in self._names or name in _WORDS or (name[0] == "e" and name[1:].isdigit()):
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    def _line(self, pieces: list[Any], before: str = "", behind: str = "") -> Line:
        line = Line(place_of(author()), pieces, before, behind)
        self._blocks[-1].items.append((self._now(), line))
        return line

    def _part(self, value: Any) -> Any:
        """A value as a piece of a text."""
        if isinstance(value, Value):
            if value._builder is not self:
                raise self._wrong("a value of another kernel", "give the kernel what it needs as a parameter, or call a helper function with `t`")
            return value
        if isinstance(value, Buffer):
            return value._name
        text = literal(value)
        if text is not None:
            return text
        raise self._wrong(
            f"a {type(value).__name__} is nothing that a kernel computes with",
            "numbers, element types, layouts, words as strings, and values of this kernel are",
        )

    def _pieces(self, value: Any) -> list[Any]:
        """An argument: a value, or a list or tuple of them, or a function that combines elements."""
        if isinstance(value, (list, tuple)):
            pieces: list[Any] = ["[" if isinstance(value, list) else "("]
            for number, entry in enumerate(value):
                pieces += [", "] if number else []
                pieces += self._pieces(entry)
            return [*pieces, "]" if isinstance(value, list) else ")"]
        if callable(value) and not isinstance(value, (Value, Buffer)):
            return [self._passed(value)]
        return [self._part(value)]

    def _index(self, entry: Any) -> list[Any]:
        """An entry of an index: a number, a value, a slice or a kept mode."""
        if isinstance(entry, slice):
            if entry.step is not None:
                raise self._wrong("a slice of a tensor has no step", "a view has strides: `t.global_view(x, shape, strides)`")
            low = [] if entry.start is None else [self._part(entry.start), " "]
            return [*low, ":", *([] if entry.stop is None else [" ", self._part(entry.stop)])]
        return [":"] if entry is Ellipsis else [self._part(entry)]

    def _call(self, word: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        """The text of a call."""
        pieces: list[Any] = [f"{word}("]
        given: list[list[Any]] = []
        for number, argument in enumerate(arguments):
            quoted = _QUOTED.get(word) == number and isinstance(argument, str)
            given.append([f'"{argument}"'] if quoted else self._pieces(argument))
        for name, argument in keywords.items():
            name = name.rstrip("_")
            if argument is True:
                given.append([name])
            elif argument is not False and argument is not None:
                given.append([f"{name} = ", *self._pieces(argument)])
        for number, each in enumerate(given):
            pieces += [", "] if number else []
            pieces += each
        return [*pieces, ")"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        word = _SPELLED.get(name, name)
        speech = _WORDS.get(word)
        if name.startswith("_") or speech not in ("call", "value", "function") and word not in ("copy.async", "gemm.async", "ceil_div"):
            raise AttributeError(f"the tile language has no statement or function `{name}`")

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._said(word, speech, arguments, keywords)

        call.__name__ = name
        return call

    def _said(self, word: str, speech: str | None, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if speech == "call" or word.endswith(".async"):
            self._line(self._call(word, arguments, keywords))
            if word not in _READERS:
                self._change(arguments)
            return None
        name = keywords.pop("name", None)
        results = _results(word, arguments, keywords)
        if word == "ticket":
            return self._integer(name, self._call(word, arguments, keywords))
        pieces = self._call(word, arguments, keywords)
        if results > 1 or word in _MADE or word in _ATOMIC:
            wanted = (name,) if isinstance(name, str) else name or names_at(author())
            dtype = arguments[0] if word in _MADE and arguments and isinstance(arguments[0], DType) else None
            names = [self._name(wanted[i : i + 1], _UNNAMED.get(word, "v")) for i in range(results)]
            self._line([f"{', '.join(names)} = ", *pieces])
            register = word not in _MADE or word == "register_tensor"
            tensors = tuple(Tensor(self, each, dtype, register) for each in names)
            return tensors if results > 1 else tensors[0]
        value = Value(self, pieces, atom=True)
        if name is not None:
            value._wanted, value._named = (name,), True
        return value

    def _integer(self, name: str | None, pieces: list[Any]) -> Value:
        """An integer with a name, by `let`."""
        named = self._name(name or names_at(author()), "n")
        self._line([f"let {named} = ", *pieces])
        return Value(self, [], atom=True, name=named)

    def _change(self, arguments: Any) -> None:
        """Notes that a statement may have changed its tensors."""
        for argument in arguments:
            if isinstance(argument, (list, tuple)):
                self._change(argument)
            elif isinstance(argument, Value):
                for value in _tensors(argument):
                    value._changed.append(self._now())

    def _assign(self, target: Value, value: Any) -> None:
        if isinstance(value, Value) and value is target:
            return
        base = target._parts[0] if _is_part(target) else target
        if not isinstance(base, Tensor):
            if not base._is_tile():
                raise self._wrong("an integer of the kernel cannot be changed", "a register tensor can; an integer has a new name: `m = n + 1`")
            # The value becomes a statement at the place where it was made: a tensor from there on.
            base._named = True
        self._line([target, " = ", *self._pieces(value)])
        base._changed.append(self._now())

    # Heads.

    def _set(self, word: str, arguments: tuple[Any, ...]) -> None:
        pieces: list[Any] = [f"{word}("]
        for number, argument in enumerate(arguments):
            pieces += [", "] if number else []
            pieces += self._pieces(argument)
        self._head[word] = Line(place_of(author()), [*pieces, ")"])

    def grid(self, *extents: Any) -> None:
        """The number of blocks along x, y and z."""
        self._set("grid", extents)

    def threads(self, *count: Any) -> None:
        """The threads of a block; with a second number, blocks that a multiprocessor has registers for."""
        self._set("threads", count)

    def cluster(self, *extents: Any) -> None:
        """The blocks of a cluster along x, y and z."""
        self._set("cluster", extents)

    @property
    def block(self) -> _Axes:
        """The index of the block: ``t.block.x``."""
        return _Axes(self)

    # Statements with forms of their own.

    def global_view(
        self, source: Any, shape: Any, strides: Any = None, name: str | None = None, fold: tuple[Any, Any] | None = None
    ) -> Tensor:
        """A part of a buffer in another shape. Without strides, the modes of the shape are those of the buffer, in their order.

        ``fold=((q, p, n), ("e2", "e1", "e0"))`` is one more mode of the buffer, behind the others, which folds some of these."""
        extents = shape if isinstance(shape, tuple) else (shape,)
        steps = strides if strides is not None else tuple(f"e{i}" for i in range(len(extents)))
        steps = steps if isinstance(steps, tuple) else (steps,)
        named = self._name(name or names_at(author()), "view")
        head = [f"{named} = global_view(", *self._pieces(source), ", "]
        folded = [", fold = ", *self._pieces(fold[0]), " : ", *self._pieces(fold[1])] if fold else []
        self._line([*head, *self._pieces(extents), " : ", *self._pieces(steps), *folded, ")"])
        return Tensor(self, named, register=False)

    def define(self, value: Any, name: str | None = None) -> Value:
        """The value as a statement here, under a name: what is used several times is one anyway."""
        pieces = self._pieces(value)
        named = self._name(name or names_at(author()), "v")
        self._line([f"{named} = ", *pieces])
        return Tensor(self, named)

    def let(self, value: Any, name: str | None = None) -> Value:
        """A name for an integer of the kernel."""
        return self._integer(name, self._pieces(value))

    def and_(self, left: Any, right: Any) -> Value:
        """True where both are."""
        return Value(self, [self._part(left), " and ", self._part(right)])

    def or_(self, left: Any, right: Any) -> Value:
        """True where one is."""
        return Value(self, [self._part(left), " or ", self._part(right)])

    def not_(self, value: Any) -> Value:
        """True where it is not."""
        return Value(self, ["not ", self._part(value)])

    def break_(self, condition: Any = None) -> None:
        """Leaves the loop around, if the condition holds."""
        self._line(["break"] if condition is None else ["break if ", *self._pieces(condition)])

    @contextmanager
    def _open(self, pieces: list[Any], before: str = "") -> Iterator[None]:
        block = Block(Line(place_of(author()), pieces, before, " {"))
        self._blocks[-1].items.append((self._now(), block))
        with self._inside(block):
            yield

    @contextmanager
    def _inside(self, block: Block) -> Iterator[None]:
        self._blocks.append(block)
        yield
        self._blocks.pop()

    @contextmanager
    def _go_on(self, word: str, begins: tuple[str, ...], pieces: list[Any]) -> Iterator[None]:
        """A block behind the brace of the one before it."""
        items = [item for item in self._blocks[-1].items if not isinstance(item, Value)]
        last = items[-1][1] if items else None
        while isinstance(last, Block) and last.then is not None:
            last = last.then
        if not isinstance(last, Block) or not last.head.text().startswith(begins):
            raise self._wrong(f"there is no block here that `{word.rstrip('_')}` belongs to", f"it stands at once behind one that begins with `{begins[0].strip()}`")
        last.then = Block(Line(place_of(author()), pieces, behind=" {"))
        self._now()
        with self._inside(last.then):
            yield

    def if_(self, condition: Any) -> Any:
        """``with t.if_(condition):`` is a branch over integers of the kernel."""
        return self._open(self._pieces(condition), "if ")

    def elif_(self, condition: Any) -> Any:
        """The branch behind one whose condition does not hold."""
        return self._go_on("elif_", ("if ", "else if "), ["else if ", *self._pieces(condition)])

    def else_(self) -> Any:
        """Statements for where no condition before holds."""
        return self._go_on("else_", ("if ", "else if "), ["else"])

    def if_any(self, condition: Any, axis: int) -> Any:
        """A branch that rows decide: elements of a condition along a mode."""
        return self._open(["any(", *self._pieces(condition), f", {axis})"], "if ")

    def warpgroup(self, name: str, count: Any = 1, registers: Any = None) -> Any:
        """A role: so many warpgroups do what the block holds."""
        self._names.add(name)
        more = [] if registers is None else [" registers(", *self._pieces(registers), ")"]
        return self._open([f"warpgroup {name}(", *self._pieces(count), ")", *more])

    def produce(self, pipeline: Value) -> Any:
        """A stage of a pipeline that is filled."""
        return self._open(["produce ", pipeline])

    def consume(self, pipeline: Value) -> Any:
        """A stage of a pipeline that is read."""
        return self._open(["consume ", pipeline])

    def in_turn(self, turns: Value) -> Any:
        """Statements that roles run in turns."""
        return self._open(["in_turn ", turns])

    def pipeline(self, stages: Any, *tensors: Any, name: str | None = None) -> Value:
        """A pipeline of stages of shared tensors."""
        named = self._name(name or names_at(author()), "stages")
        self._line([f"{named} = ", *self._call("pipeline", (stages, *tensors), {})])
        return Value(self, [], atom=True, name=named)

    def range(self, low: Any, high: Any = None, while_: Callable[[Value], Any] | None = None, name: str | None = None) -> Iterator[Value]:
        """``for i in t.range(n):`` is a loop of the kernel, whose body Python runs once."""
        return self._loop("for ", low, high, name, while_)

    def unroll(self, low: Any, high: Any = None, by: Any = None, name: str | None = None) -> Iterator[Value]:
        """The same, expanded when the kernel is compiled."""
        head = "unroll for " if by is None else f"unroll({by}) for "
        return self._loop(head, low, high, name, None)

    def _loop(self, head: str, low: Any, high: Any, name: str | None, condition: Callable[[Value], Any] | None) -> Iterator[Value]:
        first, end = (0, low) if high is None else (low, high)
        counter = self._name(name or names_at(author()), "i")
        counted = Value(self, [], atom=True, name=counter)
        pieces = [counter, " in ", self._part(first), " .. ", self._part(end)]
        if condition is not None:
            pieces += [" while ", self._part(condition(counted))]
        yield from self._once(pieces, head, counted)

    def _once(self, pieces: list[Any], head: str, counters: Any) -> Iterator[Any]:
        place = place_of(author())
        with self._open(pieces, head):
            depth = len(self._blocks)
            try:
                yield counters
            except GeneratorExit:
                self._left = self._wrong(
                    "`break` or `return` leaves a loop of the kernel while it is being built",
                    "`t.break_(condition)` leaves the loop when the kernel runs",
                    place,
                )
                raise
            finally:
                del self._blocks[depth:]

    def tiles(self, rows: Any, columns: Any, *order: Any, dynamic: Any = None, previous: bool = False) -> Iterator[Any]:
        """``for i, j in t.tiles(rows, columns, "grouped(8)"):`` goes over tiles that the blocks share; with `previous`,
        ``for (i, j), (pi, pj) in …`` has the tile before, too, and ``with t.drain():`` what is left at the end."""
        wanted = names_at(author()) if not previous else ()
        names = [self._name(wanted[i : i + 1], each) for i, each in enumerate(("i", "j"))]
        counters = [Value(self, [], atom=True, name=name) for name in names]
        head: list[Any] = [f"({names[0]}, {names[1]})"]
        result: Any = tuple(counters)
        if previous:
            before = [self._name((), each) for each in ("pi", "pj")]
            head.append(f" previous ({before[0]}, {before[1]})")
            result = (result, tuple(Value(self, [], atom=True, name=name) for name in before))
        keywords = {} if dynamic is None else {"dynamic": dynamic}
        yield from self._once([*head, " in ", *self._call("tiles", (rows, columns, *order), keywords)], "for ", result)

    def drain(self) -> Any:
        """Statements behind the last of tiles with `previous`."""
        return self._go_on("drain", ("for ",), ["drain"])

    def _passed(self, function: Callable[..., Any]) -> str:
        """A function that combines elements, as a function of the text; each is read once."""
        if function in self._functions:
            return self._functions[function][0]
        name = self._name(getattr(function, "__name__", "f").replace("<lambda>", "combine"), "combine")
        params = [self._name(param, "x") for param in inspect.signature(function).parameters]
        block = Block(Line(place_of(author()), [], f"fn {name}({', '.join(params)})", " {"))
        with self._inside(block):
            values = [Tensor(self, param) for param in params]
            result = function(*values)
            results = result if isinstance(result, tuple) else (result,)
            pieces: list[Any] = ["return "]
            for number, each in enumerate(results):
                pieces += [", "] if number else []
                pieces += self._pieces(each)
            self._line(pieces)
        self._functions[function] = (name, params, block)
        return name


class _Axes:
    """The indices of the block along its axes."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def __getattr__(self, axis: str) -> Value:
        if axis not in ("x", "y", "z"):
            raise AttributeError(f"a block has indices x, y and z, and no {axis}")
        return Value(self._builder, [f"block.{axis}"], atom=True)


def _results(word: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int:
    """The number of tensors that a value is."""
    if word in ("split", "argmax", "argmin"):
        return 2
    if word == "sort":
        return 2 if len(arguments) > 1 and isinstance(arguments[1], Value) else 1
    if word in ("reduce", "scan") and arguments and isinstance(arguments[0], tuple):
        return len(arguments[0])
    return 1


def _is_part(value: Value) -> bool:
    """True of `r[…]`."""
    return len(value._parts) > 1 and isinstance(value._parts[0], Value) and value._parts[1] == "["


def _in_memory(value: Value) -> bool:
    """True of a part of a view or of a shared tensor, which is a place and no value."""
    base = value._parts[0] if _is_part(value) else value
    return isinstance(base, Tensor) and not base.register


def _tensors(value: Value) -> Iterator[Value]:
    """The tensors in an expression."""
    if isinstance(value, Tensor) or value._named:
        yield value
    for child in value._children():
        yield from _tensors(child)


class _Namer:
    """Decides which expressions are statements of their own, and gives them names."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        #: Of each value, the blocks and places of the sequence at which it is used.
        self.uses: dict[Value, list[tuple[Block, int]]] = {}

    def use(self, pieces: list[Any], block: Block, at: int) -> None:
        for piece in pieces:
            if isinstance(piece, Value) and piece._name is None:
                self.uses.setdefault(piece, []).append((block, at))

    def decide(self, block: Block) -> None:
        """Goes through a block from its end: whoever uses a value comes behind it."""
        for item in reversed(block.items):
            if isinstance(item, Value):
                self.value(item)
                continue
            at, what = item
            if isinstance(what, Line):
                self.use(what.pieces, block, at)
                continue
            chain = [what]
            while chain[-1].then is not None:
                chain.append(chain[-1].then)
            for each in reversed(chain):
                self.decide(each)
                self.use(each.head.pieces, block, at)

    def value(self, value: Value) -> None:
        if value._name is not None:
            return
        uses = self.uses.get(value, [])
        if not uses and not value._named:
            return
        made, at = value._made
        if value._tile and not _in_memory(value):
            elsewhere = any(block is not made for block, _ in uses)
            last = max((place for _, place in uses), default=at)
            changed = any(at < change < last for tensor in _tensors(value) for change in tensor._changed)
            value._named |= changed or not _is_part(value) and (len(uses) > 1 or elsewhere)
        if value._named:
            self.use(value._parts, made, at)
            return
        for block, place in uses:
            self.use(value._parts, block, place)


class _Text:
    """The text of a kernel, line by line, with the place of each."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.lines: list[tuple[str, Place | None]] = []

    def block(self, block: Block, depth: int) -> None:
        pad = "    " * depth
        for item in block.items:
            if isinstance(item, Value):
                if item._named and item._name is None:
                    text = item._text(True)
                    item._name = self.builder._name(item._wanted, "v")
                    self.lines.append((f"{pad}{item._name} = {text}", item._place))
                continue
            _, what = item
            if isinstance(what, Line):
                self.lines.append((pad + what.text(), what.place))
                continue
            self.lines.append((pad + what.head.text(), what.head.place))
            self.block(what, depth + 1)
            while what.then is not None:
                what = what.then
                self.lines.append((f"{pad}}} {what.head.text()}", what.head.place))
                self.block(what, depth + 1)
            self.lines.append((f"{pad}}}", None))


def _annotations(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function behind the builder, with their annotations as objects."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:
        # Names of the function around, which a text of an annotation does not reach.
        around = inspect.getclosurevars(function).nonlocals
        signature = inspect.signature(function, eval_str=True, locals={**around, **DTYPES, "size": size, "const": const})
    return list(signature.parameters.values())[1:]


def record(function: Callable[..., Any]) -> tuple[str, list[tuple[str, str]], list[tuple[int, int, tuple[int, int], tuple[int, int]]]]:
    """Runs a function once: the text of its kernel, the author's files, and the places of its lines in them."""
    builder = Builder(function)
    code = getattr(function, "__code__", None)
    name = function.__name__
    at = Place(code.co_filename, (code.co_firstlineno, 0), (code.co_firstlineno, 1 << 20)) if code else None

    def refuse(message: str, help: str) -> CompileError:
        return builder._wrong(message, help, at)

    if keyword.iskeyword(name) or not name.isascii() or not name.isidentifier():
        raise refuse(f"`{name}` cannot be the name of a kernel", "define it by `def` under a name of letters, digits and `_`")
    sizes: list[str] = []
    constants: list[str] = []
    params: list[str] = []
    arguments: list[Value | Buffer] = []
    for param in _annotations(function):
        kind, default = param.annotation, param.default
        builder._names.add(param.name)
        missing = default is inspect.Parameter.empty
        if isinstance(kind, _Kind):
            if missing:
                raise refuse(f"the {kind.name} `{param.name}` has no default", f"`{param.name}: {kind.name} = 1024` has one, which `check` and `explain` take")
            if kind is const:
                constants.append(f"{param.name} = {literal(default)}")
            else:
                sizes.append(f"{param.name} = {literal(default)}")
            arguments.append(Value(builder, [], atom=True, name=param.name))
        elif isinstance(kind, TensorType):
            count = f"[{literal(kind.count)}]" if kind.count is not None else ""
            strides = f" : ({', '.join(str(literal(each)) for each in kind.strides)})" if kind.strides else ""
            extents = ", ".join(str(literal(each)) for each in kind.shape)
            params.append(f"{'constant ' if kind.constant else ''}{param.name}: {kind.dtype}{count}[{extents}]{strides}")
            arguments.append(Buffer(builder, param.name, len(kind.shape) + (kind.count is not None), kind.dtype))
        elif isinstance(kind, DType):
            if missing:
                raise refuse(f"the number `{param.name}` has no default", f"`{param.name}: {kind} = 1` has one; a tensor has extents: `{kind}[\"n\"]`")
            params.append(f"{param.name}: {kind} = {literal(default)}")
            arguments.append(Value(builder, [], atom=True, name=param.name))
        else:
            raise refuse(
                f"the parameter `{param.name}` has no annotation of a kernel",
                'a tensor has one like `f16["m", "n"]`, a number `f32 = 1.0`, a size `size = 1024`, a constant `const = 64`',
            )
    builder._blocks[0].items.clear()
    function(builder, *arguments)
    if builder._left is not None:
        raise builder._left
    for word in ("grid", "threads"):
        if word not in builder._head:
            raise refuse(f"the kernel does not say its {word}", f"`t.{word}(…)` does")
    body = builder._blocks[0]
    bodies = [block for _, _, block in builder._functions.values()]
    namer = _Namer(builder)
    namer.decide(body)
    for block in bodies:
        namer.decide(block)
    text = _Text(builder)
    for word, declared in (("size", sizes), ("const", constants)):
        if declared:
            text.lines.append((f"{word} {', '.join(declared)}", at))
    for block in bodies:
        text.lines.append((block.head.text(), block.head.place))
        text.block(block, 1)
        text.lines.append(("}", None))
    text.lines.append((f"kernel {name}({', '.join(params)})", at))
    for word in ("grid", "threads", "cluster"):
        if word in builder._head:
            text.lines.append((f"    {builder._head[word].text()}", builder._head[word].place))
    text.lines.append(("{", None))
    text.block(body, 1)
    text.lines.append(("}", None))
    return _placed(text.lines)


def _placed(lines: list[tuple[str, Place | None]]) -> tuple[str, list[tuple[str, str]], list[tuple[int, int, tuple[int, int], tuple[int, int]]]]:
    """Lines as a text, with the files and places that they stand for."""
    files: list[str] = []
    placed = []
    for number, (_, place) in enumerate(lines, start=1):
        if place is None:
            continue
        if place.file not in files:
            files.append(place.file)
        placed.append((number, files.index(place.file), place.start, place.end))
    texts = [(file, "".join(linecache.getlines(file))) for file in files]
    return "".join(f"{line}\n" for line, _ in lines), texts, placed
