// The data of the page, with what is looked up in it.

const PAGE = JSON.parse($("data").textContent);
const KINDS = ["global", "shared", "product", "compute", "synchronisation", "control"];
const KIND_NAMES = {
  global: "global memory", shared: "shared memory", product: "matrix product", compute: "computation",
  synchronisation: "synchronisation", control: "control",
};
const CATEGORIES = ["statement", "wait", "copy", "product"];

/** Ways to weigh statements: the amount of one, and how it is said. */
const METRICS = {
  time: {
    name: "Time", hint: "Cycles of warps: issue (solid) and stall (hatched)",
    of: (s) => s.issue + s.stall, parts: (s) => [s.issue, s.stall], unit: (n) => `${num(n)} cycles of warps`,
  },
  issue: { name: "Issue", hint: "Cycles in which warps issue", of: (s) => s.issue, unit: (n) => `${num(n)} cycles of warps` },
  traffic: { name: "Bytes", hint: "Bytes to and from global memory", of: (s) => s.globalBytes, unit: bytes },
  conflicts: {
    name: "Wavefronts", hint: "Wavefronts of shared memory: needed (solid) and added by bank conflicts (hatched)",
    of: (s) => s.wavefronts, parts: (s) => [s.wavefronts - s.conflicts, s.conflicts], unit: (n) => `${num(n)} wavefronts`,
  },
};
/** Without a run, what the compiler estimates of one execution. */
const ESTIMATES = {
  estimate: { name: "Estimate", hint: "Issue cycles of one execution by one warp", of: (s) => s.estimate, unit: (n) => `${num(n)} issue cycles of a warp` },
};

/** Adds to a kernel what the parts of the page ask for. */
function prepare(kernel) {
  if (kernel.prepared) return kernel;
  kernel.prepared = true;
  kernel.byLine = new Map();
  kernel.statements.forEach((s, index) => {
    s.index = index;
    const sum = (value) => s.costs.reduce((total, row) => total + value(row), 0);
    s.issue = sum((row) => row.issue_cycles);
    s.stall = sum((row) => row.stall_cycles);
    s.globalBytes = sum((row) => row.bytes.global_read + row.bytes.global_written + row.bytes.unit_read + row.bytes.unit_written);
    s.wavefronts = sum((row) => row.shared_wavefronts);
    s.conflicts = sum((row) => row.shared_wavefronts - row.shared_ideal);
    s.estimate = s.choices.reduce((total, choice) => total + choice.count * choice.cycles, 0);
    if (!s.place) return;
    const key = lineKey(s.place.file, s.place.line);
    if (!kernel.byLine.has(key)) kernel.byLine.set(key, []);
    kernel.byLine.get(key).push(s);
  });
  kernel.byName = new Map(kernel.tensors.map((tensor) => [tensor.name, tensor]));
  kernel.byWord = new Map();
  for (const tensor of kernel.tensors) {
    if (!tensor.word) continue;
    if (!kernel.byWord.has(tensor.word)) kernel.byWord.set(tensor.word, []);
    kernel.byWord.get(tensor.word).push(tensor);
  }
  kernel.messagesByLine = new Map();
  for (const message of kernel.messages) {
    if (!message.place) continue;
    const key = lineKey(message.place.file, message.place.line);
    if (!kernel.messagesByLine.has(key)) kernel.messagesByLine.set(key, []);
    kernel.messagesByLine.get(key).push(message);
  }
  return kernel;
}

const lineKey = (file, line) => `${file}:${line}`;

/** A name for people: the expression of a tensor that has no name in the text. */
const tensorLabel = (tensor) => tensor.expression ?? tensor.name;

/** `f16 [128, 64, 4]`. */
const tensorType = (tensor) => `${tensor.dtype} [${tensor.shape.join(", ")}]`;

/** Registers of a thread, or bytes. */
const tensorSize = (tensor) =>
  tensor.memory === "shared" ? `${bytes(tensor.size)} at ${num(tensor.offset)}` : `${count(tensor.size, "register")} a thread`;

/** What is shown, and who wants to know when that changes. */
const State = {
  kernel: null,
  metric: "time",
  /** Index of a statement, or nothing. */
  statement: null,
  /** Name of a tensor, or nothing. */
  tensor: null,
  watchers: [],
  watch(watcher) {
    this.watchers.push(watcher);
  },
  select({ statement = null, tensor = null }, from = "") {
    this.statement = statement;
    this.tensor = tensor;
    this.watchers.forEach((watcher) => watcher(from));
  },
};

/** The metrics of a kernel. */
const metricsOf = (kernel) => (kernel.run ? METRICS : ESTIMATES);

/** The metric that is shown. */
function metric() {
  const metrics = metricsOf(State.kernel);
  return metrics[State.metric] ?? Object.values(metrics)[0];
}
