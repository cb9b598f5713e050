"""Words that join a cache of keys and values, and attention over it: what decoders of `bench/python_llama.py` and `bench/python_qwen.py` have in common. Caches lie as those of `transformers` do,
``[sequences, heads, room, elements]``, and queries ``[sequences, heads, elements]``."""

import functools

import tilewright
import tilewright.torch as tt
from tilewright import const, f32, i32, size


@functools.cache
def appending(dtype, eps):
    """The kernel that appends a word of each sequence: queries turned by the angles of their words' places, and keys, turned too, and values put into the cache. With `eps` each head of queries and keys is
    divided by its length first, and multiplied by weights. A block has a head of a word."""

    def body(t, x, weights, cos, sin, at, q, kc, vc, room, HQ, HK, D):
        half = D // 2
        word, head = t.block.x, t.block.y
        place = t.let(t.min(t.max(at[word], 0), room - 1), name="place")

        def halves(kind, name):
            return [t.register_tensor(kind, [half], name=f"{name}_{part}") for part in ("low", "high")]

        def load(tensor, index, step, target):
            for first, part in zip((0, half), target):
                t.copy(t.global_view(tensor[(*index, slice(first, None))], (half,), (step,)), part)

        def store(parts, tensor, index, step):
            for first, part in zip((0, half), parts):
                t.copy(part, t.global_view(tensor[(*index, slice(first, None))], (half,), (step,)))

        def since(first):
            return slice(first, None)

        low, high = halves(dtype, "x")
        load(x, (since(word), since(head)), "e2", (low, high))
        with t.if_(head < HQ + HK):
            c, s = t.register_tensor(f32, [half], name="c"), t.register_tensor(f32, [half], name="s")
            for table, target in ((cos, c), (sin, s)):
                t.copy(t.global_view(table[place:, :], (half,), ("e1",)), target)
            a, b = t.cast(low, f32), t.cast(high, f32)
            if eps is not None:
                factors = halves(dtype, "w")
                with t.if_(head < HQ):
                    load(weights[0], (), "e0", factors)
                with t.else_():
                    load(weights[1], (), "e0", factors)
                length = t.rsqrt(t.reduce(a * a + b * b, "sum", 0, keep=True) / t.float(D) + eps)
                a, b = (each * t.broadcast(length, [half]) * t.cast(factor, f32) for each, factor in zip((a, b), factors))
            turned = t.cast(a * c - b * s, dtype), t.cast(b * c + a * s, dtype)
            with t.if_(head < HQ):
                store(turned, q, (since(word), since(head)), "e2")
            with t.else_():
                store(turned, kc, (since(word), since(head - HQ), since(place)), "e3")
        with t.else_():
            store((low, high), vc, (since(word), since(head - HQ - HK), since(place)), "e3")

    if eps is None:

        def append(
            t,
            x: dtype["m", "HQ + 2 * HK", "D"],
            cos: f32["places", "D / 2"],
            sin: f32["places", "D / 2"],
            at: i32["m"],
            q: dtype["m", "HQ", "D"],
            kc: dtype["m", "HK", "room", "D"],
            vc: dtype["m", "HK", "room", "D"],
            m: size = 3,
            places: size = 64,
            room: size = 40,
            HQ: const = 4,
            HK: const = 2,
            D: const = 16,
        ):
            t.grid(m, HQ + 2 * HK)
            t.threads(32)
            body(t, x, None, cos, sin, at, q, kc, vc, room, HQ, HK, D)

    else:

        def append(
            t,
            x: dtype["m", "HQ + 2 * HK", "D"],
            wq: dtype["D"],
            wk: dtype["D"],
            cos: f32["places", "D / 2"],
            sin: f32["places", "D / 2"],
            at: i32["m"],
            q: dtype["m", "HQ", "D"],
            kc: dtype["m", "HK", "room", "D"],
            vc: dtype["m", "HK", "room", "D"],
            m: size = 3,
            places: size = 64,
            room: size = 40,
            HQ: const = 4,
            HK: const = 2,
            D: const = 16,
        ):
            t.grid(m, HQ + 2 * HK)
            t.threads(32)
            body(t, x, (wq, wk), cos, sin, at, q, kc, vc, room, HQ, HK, D)

    return tilewright.kernel(append)


class Append:
    """Launches of such a kernel for so many heads of queries, of keys, and elements; on the CPU runs of the simulator."""

    def __init__(self, dtype, heads, shared, d, eps=None):
        self.kernel = appending(dtype, eps)
        self.constants = {"HQ": heads, "HK": shared, "D": d}
        self.launches = self.kernel.launches(**self.constants)

    def __call__(self, *given):
        if given[0].is_cuda:
            self.launches(*given)
        else:
            self.kernel.simulate(*given, **self.constants).assert_right()


def attended(q, keys, values, lengths):
    """Attention of a word of each sequence over its cache, of which so many places count for each head: a head of keys is a sequence of its own, as heads come before places."""
    batch, shared, room, d = keys.shape
    alone = (batch * shared, room, 1, d)
    return tt.attention_decode(q.view(alone[0], 1, -1, d), keys.view(alone), values.view(alone), lengths).view(batch, -1)
