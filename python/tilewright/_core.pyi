from collections.abc import Callable as _Callable
from collections.abc import Sequence
from typing import final

from typing_extensions import Self, disjoint_base

__all__ = [
    "Callable",
    "Experts",
    "Kernel",
    "Launcher",
    "Library",
    "Operation",
    "Plain",
    "Program",
    "Value",
    "__version__",
    "architectures",
    "command",
    "evaluate",
    "explain",
    "functions",
    "gpus",
    "read_checkpoint",
    "stored_weights",
    "tuned",
    "types",
    "words",
]

__version__: str

@disjoint_base
class Callable:
    def __new__(cls, *_args: object, **_named: object) -> Self: ...
    def __call__(self, *args: object, stream: int | None = None, **named: object) -> None: ...

@final
class Value:
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    @property
    def kind(self) -> str: ...
    def json(self) -> str: ...
    def draw(self, form: str, bits: int | None, tile: tuple[int, int] | None) -> str: ...

@final
class Plain:
    def __new__(
        cls, tensor: object, classes: list[object], interceptors: list[object], recording: object
    ) -> Plain: ...
    def __call__(self, given: tuple[object, ...]) -> bool: ...

@final
class Operation:
    def __new__(
        cls,
        plain: Plain,
        launcher: Launcher,
        empty_like: object,
        likes: list[int],
        order: list[int],
        dense: list[int],
        inputs: int,
    ) -> Operation: ...
    def __call__(self, given: tuple[object, ...]) -> object: ...

@final
class Program:
    def __new__(
        cls,
        text: str,
        path: str,
        kernel: str | None = None,
        files: list[tuple[str, str]] = ...,
        lines: list[tuple[int, int, tuple[int, int], tuple[int, int]]] = ...,
    ) -> Program: ...
    @property
    def name(self) -> str: ...
    def json(self) -> str: ...
    def sizes_of(self, shapes: dict[str, list[int]]) -> dict[str, int]: ...
    def compile(self, arch: str | None, values: dict[str, int], assume: dict[str, int] | None = None) -> Kernel: ...

    def launcher(self, constants: dict[str, int]) -> Launcher: ...

@final
class Launcher:
    strict: bool
    def launch(self, args: tuple[object, ...], stream: int | None = None, sizes: dict[str, int] | None = None) -> None: ...
    def warm_up(self, ordinal: int, sizes: list[dict[str, int]]) -> int: ...
    def specialisations(self) -> list[tuple[int, dict[str, int]]]: ...

@final
class Kernel:
    @property
    def name(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def ptx(self) -> str: ...
    def tile(self) -> str: ...
    def explain(self) -> str: ...
    def json(self) -> str: ...
    def draw(self, name: str, form: str) -> str: ...
    def run(
        self,
        arrays: list[tuple[str, str, list[int], bytes]],
        scalars: dict[str, float],
        sizes: dict[str, int],
        seed: int = 0,
        sim_seed: int = 0,
        interpret: bool = False,
        random: bool = False,
        force: bool = False,
    ) -> tuple[str, list[tuple[str, str, list[int], bytes]]]: ...

@final
class Library:
    def __new__(cls, ordinal: int) -> Library: ...
    def call(
        self,
        name: str,
        arguments: dict[str, object],
        options: dict[str, str],
        sizes: dict[str, int],
        stream: int | None = None,
        strict: bool = False,
        workspace: tuple[int, int] | None = None,
        lends: bool = False,
        dependent: bool = False,
    ) -> int: ...
    def why(self, name: str, arguments: dict[str, object], options: dict[str, str], sizes: dict[str, int]) -> str: ...
    def warm_up(self, name: str, options: dict[str, str], sizes: dict[str, tuple[int, int]]) -> tuple[int, int, int]: ...

@final
class Experts:
    def __new__(
        cls,
        library: Library,
        dtype: str,
        weights: str,
        group: int | None,
        hidden: int,
        intermediate: int,
        experts: int,
        k: int,
        added: bool = False,
    ) -> Experts: ...
    def call(
        self,
        tokens: int,
        arguments: dict[str, object],
        stream: int | None = None,
        strict: bool = False,
        workspace: tuple[int, int] | None = None,
    ) -> int: ...
    def warm_up(self, first: int, last: int) -> tuple[int, int, int]: ...

def stored_weights(dtype: str, group: int, n: int, k: int) -> tuple[int, int, int]: ...
def read_checkpoint(
    form: str,
    shape: tuple[int, int] | list[int],
    group: int,
    weights: bytes,
    zeros: bytes,
    groups: bytes | None = None,
) -> tuple[bytes, bytes]: ...
def command(words: Sequence[str]) -> int: ...
def evaluate(text: str) -> Value: ...
def functions() -> list[tuple[str, str]]: ...
def gpus() -> list[str]: ...
def tuned(
    operator: str,
    sizes: dict[str, int],
    options: dict[str, str],
    ordinal: int,
    seconds: float,
    fresh: bool,
    arch: str | None = None,
    progress: _Callable[[float, str], object] | None = None,
) -> str: ...
def words() -> list[tuple[str, str]]: ...
def types() -> list[tuple[str, int]]: ...
def architectures() -> list[str]: ...
def explain(code: str) -> str: ...
