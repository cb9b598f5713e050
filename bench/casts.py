#!/usr/bin/env python3
"""Searches sequences of rows that cast weights of 3 bits, which lie as two tensors (codes of 2 bits, and upper bits), to f16, and checks those that it finds on all codes.

    bench/casts.py        # no GPU, a second

A row is an instruction for a thread's registers. A pair of values is made from a word of codes and one of upper bits by bitwise rows (`lop3`), after which one multiply-add
of a pair takes the offset and the position away; or four values by a lookup (`prmt` takes a nibble of its selector as the number of one of eight bytes). Where in the words
a value lies is free: shifts count as rows, and the order of stored weights may save them.
"""

import itertools
import random
import struct

VALUES = 8
LOWER = 2


def half(x):
    """The bits of a number in f16."""
    return struct.unpack("<H", struct.pack("<e", x))[0]


def number(bits):
    """The number of 16 bits."""
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def value(code):
    """The number of a code of 3 bits: a signed integer."""
    return code - VALUES if code >= VALUES // 2 else code


def one_bitwise_row():
    """The tables of `lop3` by which one row takes both words apart: bits of codes, the upper bit, and constants elsewhere, whatever lies in the other bits."""
    found = []
    for table in range(256):
        # What a bit of the constant makes of a bit of each word.
        made = [[table >> (4 * w + 2 * h + c) & 1 for w in (0, 1) for h in (0, 1)] for c in (0, 1)]
        of_codes = any(m in ([0, 0, 1, 1], [1, 1, 0, 0]) for m in made)
        of_upper = any(m in ([0, 1, 0, 1], [1, 0, 1, 0]) for m in made)
        constant = any(m in ([0] * 4, [1] * 4) for m in made)
        if of_codes and of_upper and constant:
            found.append(table)
    return found


def two_bitwise_rows(place):
    """Whether two rows and a multiply-add are exact, with a code of 2 bits from bit `place` of a half on, and its upper bit behind."""
    magic, mask, upper = half(1024.0), 3 << place, 4 << place
    seen = {}
    for code in range(VALUES):
        for _ in range(64):
            garbage = [random.getrandbits(16) for _ in range(2)]
            word = garbage[0] & ~mask | (code & 3) << place
            high = garbage[1] & ~upper | (code >> LOWER) << place + LOWER
            # (word & mask) ^ magic, then (high & upper) ^ that, with the upper bit flipped: codes count from the least value.
            bits = (word & mask) ^ (magic | upper)
            bits ^= high & upper
            seen.setdefault(code, set()).add(number(bits))
    if any(len(numbers) > 1 for numbers in seen.values()):
        return False
    scale, least = 2.0**-place, seen[VALUES // 2].copy().pop()
    offset = value(VALUES // 2) - least * scale
    # One rounding: the offset and the result must be numbers of f16.
    return number(half(offset)) == offset and all(min(seen[code]) * scale + offset == value(code) for code in range(VALUES))


def permuted(low, high, selector):
    """`prmt`: the byte that each nibble of the selector's low half numbers."""
    data = low | high << 32
    out = 0
    for at in range(4):
        nibble = selector >> 4 * at & 15
        byte = data >> 8 * (nibble & 7) & 255
        out |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * at
    return out


def looked_up(codes):
    """Eight values by lookups from a word of 2-bit codes and one of upper bits, in their own order: the halves, and the rows."""
    rows = 0
    # Every second code of a word, every fourth upper bit.
    word = sum((code & 3) << 4 * at for at, code in enumerate(codes)) | random.getrandbits(32) & 0xCCCCCCCC
    high = sum((code >> LOWER) << 4 * at + LOWER for at, code in enumerate(codes)) | random.getrandbits(32) & 0xBBBBBBBB
    selector = word & 0x33333333
    selector |= high & 0x44444444
    rows += 2
    table = [half(value(code)) for code in range(VALUES)]
    assert all(bits & 255 == 0 for bits in table)
    low, up = (sum((bits >> 8) << 8 * at for at, bits in enumerate(part)) for part in (table[:4], table[4:]))
    out = []
    for at in (0, 1):
        rows += at  # the upper half of the selector is shifted down
        four = permuted(low, up, selector >> 16 * at)
        rows += 1
        for pair in (0, 1):
            both = permuted(four, 0, (2 * pair + 1) << 12 | 4 << 8 | 2 * pair << 4 | 4)
            out += [both & 0xFFFF, both >> 16]
            rows += 1
    return out, rows


def main():
    random.seed(1)
    alone = one_bitwise_row()
    print(f"one bitwise row and a multiply-add: {len(alone)} of 256 tables")
    places = [place for place in range(14) if two_bitwise_rows(place)]
    print(f"two bitwise rows and a multiply-add, 3 rows for a pair: exact with codes from bit {places[0]} to {places[-1]} of a half on")
    rows = 0
    for first in itertools.product(range(VALUES), repeat=4):
        codes = [*first, *(random.randrange(VALUES) for _ in range(4))]
        bits, rows = looked_up(codes)
        assert [number(each) for each in bits] == [value(code) for code in codes], codes
    print(f"lookups: exact, {rows} rows for eight values, {rows / 4} for a pair, beside shifts of the words to every second code and every fourth upper bit (0 to 2 for eight values)")


if __name__ == "__main__":
    main()
