// Layouts: (extent, stride) pairs, leftmost fastest.

const BANKS = 32;
const LANES = 32;

const Layout = {
  /** The value at an index. */
  at(leaves, index) {
    let sum = 0;
    for (const [extent, stride] of leaves) {
      sum += (index % extent) * stride;
      index = Math.floor(index / extent);
    }
    return sum;
  },

  size: (leaves) => leaves.reduce((product, [extent]) => product * extent, 1),

  /** An offset in elements after the swizzle. */
  swizzle([bits, base, shift], offset) {
    return bits ? offset ^ ((offset >> shift) & (((1 << bits) - 1) << base)) : offset;
  },

  /** The offset of a coordinate of a shared tensor in elements. */
  offset(tensor, coordinate) {
    const sum = tensor.modes.reduce((sum, leaves, mode) => sum + Layout.at(leaves, coordinate[mode] ?? 0), 0);
    return Layout.swizzle(tensor.swizzle, sum);
  },

  /** A tensor as rows and columns: one mode is wrapped, modes behind the second are slices. */
  grid(tensor) {
    const shape = tensor.shape.length ? tensor.shape : [1];
    const slices = shape.slice(2).reduce((a, b) => a * b, 1);
    if (shape.length === 1) {
      const cols = Math.min(shape[0], 64);
      const rows = Math.ceil(shape[0] / cols);
      return {
        rows, cols, slices: 1,
        coordinate: (_, row, col) => (row * cols + col < shape[0] ? [row * cols + col] : null),
      };
    }
    const [rows, cols] = shape;
    return {
      rows, cols, slices,
      coordinate(slice, row, col) {
        const rest = shape.slice(2).map((extent) => {
          const digit = slice % extent;
          slice = Math.floor(slice / extent);
          return digit;
        });
        return [row, col, ...rest];
      },
    };
  },

  /** The linear coordinate, leftmost mode fastest. */
  linear(tensor, coordinate) {
    let step = 1, sum = 0;
    tensor.shape.forEach((extent, mode) => {
      sum += coordinate[mode] * step;
      step *= extent;
    });
    return sum;
  },

  /** Of a register tensor, by linear coordinate: the first thread and value that hold it, and how many do. */
  holders(tensor) {
    if (tensor.holders) return tensor.holders;
    const size = tensor.shape.reduce((a, b) => a * b, 1);
    const found = { thread: new Int32Array(size).fill(-1), value: new Int32Array(size), count: new Int32Array(size) };
    const threads = Layout.size(tensor.threads), values = Layout.size(tensor.values);
    const offsets = Array.from({ length: values }, (_, v) => Layout.at(tensor.values, v));
    for (let thread = 0; thread < threads; thread++) {
      const first = Layout.at(tensor.threads, thread);
      for (let value = 0; value < values; value++) {
        const at = first + offsets[value];
        if (at < 0 || at >= size) continue;
        if (found.thread[at] < 0) {
          found.thread[at] = thread;
          found.value[at] = value;
        }
        found.count[at] += 1;
      }
    }
    tensor.holders = found;
    return found;
  },

  /** The byte of the block's shared memory at which an element begins. */
  address(tensor, coordinate) {
    return tensor.offset + Math.floor((Layout.offset(tensor, coordinate) * tensor.bits) / 8);
  },

  /** The bank of an address. */
  bank: (address) => Math.floor(address / 4) % BANKS,
};

/**
 * The wavefronts of a warp's request: phases of 8, 16 or 32 lanes, each with a list of wavefronts; a wavefront has for each bank the lanes
 * that it serves, or nothing.
 */
function wavefronts(request) {
  const lanes = request.bytes >= 16 ? 8 : request.bytes === 8 ? 16 : LANES;
  const phases = [];
  for (let first = 0; first < LANES; first += lanes) {
    const banks = Array.from({ length: BANKS }, () => new Map());
    for (let lane = first; lane < first + lanes; lane++) {
      const offset = request.offsets[lane];
      if (offset === null || offset === undefined) continue;
      const last = Math.floor((offset + request.bytes - 1) / 4);
      for (let word = Math.floor(offset / 4); word <= last; word++) {
        const of = banks[word % BANKS];
        if (!of.has(word)) of.set(word, []);
        of.get(word).push(lane);
      }
    }
    const depth = Math.max(...banks.map((of) => of.size));
    const rows = Array.from({ length: depth }, (_, k) => banks.map((of) => [...of.values()][k] ?? null));
    if (depth > 0) phases.push(rows);
  }
  return phases;
}
