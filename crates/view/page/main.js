// The page as a whole.

const KEYS = [
  ["↑ ↓ or k j", "The statement before or after (in the source)"],
  ["1 … 7", "A panel: timeline, shared memory, tensors, candidates, PTX, compiler, messages"],
  ["← → + − 0", "Timeline: move, magnify, all of it"],
  ["arrows", "Picture of a layout: the next element"],
  ["n p", "The next or previous time that the chosen statement runs, in the timeline"],
  ["Esc", "Nothing chosen"],
  ["t", "Light or dark"],
  ["?", "These keys"],
];

const Main = {
  start() {
    const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    document.documentElement.dataset.theme = new URLSearchParams(location.search).get("theme") ?? theme;
    $("theme").addEventListener("click", () => this.toggleTheme());
    $("keys").addEventListener("click", () => this.help());
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", () => Timeline.ready());
    this.splitter();
    State.watch((from) => {
      Inspector.render();
      Source.mark();
      if (Panels.now === "timeline") Timeline.draw();
      if (Panels.now === "ptx") Ptx.mark(from !== "ptx");
      const chosen = State.statement === null ? null : State.kernel.statements[State.statement];
      if ((from === "timeline" || from === "ptx") && chosen?.place) Source.show(chosen.place);
    });
    this.open(0);
  },

  open(index) {
    State.kernel = prepare(PAGE.kernels[index]);
    [State.statement, State.tensor] = [null, null];
    const first = State.kernel.statements.find((s) => s.place && s.calls.length === 0)?.place;
    Source.file = first?.file ?? 0;
    this.header(index);
    Source.render();
    Inspector.render();
    Timeline.reset();
    Panels.render();
  },

  header(index) {
    const kernel = State.kernel;
    const { run, estimate } = kernel;
    $("kernels").replaceChildren(PAGE.kernels.length > 1
      ? el("select", { "aria-label": "Kernel", onchange: (event) => this.open(Number(event.target.value)) },
        PAGE.kernels.map((k, i) => el("option", { value: i, selected: i === index }, k.name)))
      : kernel.name);
    $("kernels").append(" ", el("span", { class: "arch" }, kernel.arch));
    const tone = run ? (run.right ? (kernel.messages.length ? "warn" : "good") : "bad") : "";
    $("verdict").replaceChildren(el("span", { class: `badge ${tone}`, title: run ? "Compared with the reference interpreter, on the simulator" : kernel.not_run }, run ? run.verdict : "not run"));
    const values = (map) => Object.entries(map).map(([name, value]) => `${name}=${value}`).join(" ");
    const facts = [
      ["sizes", values(kernel.sizes)],
      ["constants", values(kernel.constants)],
      ["grid", kernel.grid && `${trimmed(kernel.grid).join(" × ")} blocks of ${kernel.threads} threads${kernel.cluster > 1 ? `, clusters of ${kernel.cluster}` : ""}`],
      ["shared", bytes(kernel.shared_bytes)],
      ["fragments", count(kernel.fragment_registers, "register")],
      ["resident", `${count(estimate.resident, "block")} an SM`],
      ["estimate", `${num(estimate.cycles)} cycles, bound by ${estimate.bound}`],
      run && ["simulated", `${run.smaller ? `${values(run.sizes)}: ` : ""}${num(run.cycles)} cycles`],
    ];
    $("facts").replaceChildren(...facts.filter((fact) => fact && fact[1]).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
  },

  toggleTheme() {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    Inspector.render();
    Panels.open(Panels.now);
  },

  help() {
    const dialog = $("help");
    dialog.replaceChildren(el("table", {}, KEYS.map(([keys, text]) => el("tr", {}, el("td", {}, el("kbd", {}, keys)), el("td", {}, text)))),
      el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close"));
    dialog.showModal();
  },

  key(event) {
    const field = event.target.closest("select, input, dialog");
    if (field || event.ctrlKey || event.metaKey || event.altKey) return;
    const tab = event.target.closest("[role=tab]");
    if (tab && ["ArrowLeft", "ArrowRight"].includes(event.key)) return void Panels.step(event.key === "ArrowRight" ? 1 : -1);
    if (event.key >= "1" && event.key <= String(Panels.list.length)) Panels.open(Panels.list[Number(event.key) - 1][0]);
    else if (event.key === "Escape") State.select({}, "keys");
    else if (event.key === "t") this.toggleTheme();
    else if (event.key === "?") this.help();
    else if (event.key === "n" || event.key === "p") Timeline.jump(event.key === "n" ? 1 : -1);
  },

  splitter() {
    const bar = $("splitter"), main = $("main");
    const set = (height) => {
      const part = Math.min(85, Math.max(12, (100 * height) / main.clientHeight));
      main.style.setProperty("--dock", `${part}%`);
      bar.setAttribute("aria-valuenow", Math.round(part));
      Timeline.ready();
    };
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      const move = (e) => set(main.getBoundingClientRect().bottom - e.clientY);
      bar.addEventListener("pointermove", move);
      bar.addEventListener("pointerup", () => bar.removeEventListener("pointermove", move), { once: true });
      event.preventDefault();
    });
    bar.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 24, ArrowDown: -24 }[event.key];
      if (step) set($("dock").clientHeight + step);
    });
  },
};

/** The extents of a grid without ones at its end. */
const trimmed = (grid) => (grid[2] > 1 ? grid : grid[1] > 1 ? grid.slice(0, 2) : grid.slice(0, 1));

Main.start();
