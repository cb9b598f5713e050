// Details of a statement or a tensor.

const Inspector = {
  render() {
    const node = $("inspector");
    const kernel = State.kernel;
    if (State.tensor && kernel.byName.has(State.tensor)) node.replaceChildren(...this.tensor(kernel.byName.get(State.tensor)));
    else if (State.statement !== null) node.replaceChildren(...this.statement(kernel.statements[State.statement]));
    else node.replaceChildren(...this.overview(kernel));
    node.scrollTop = 0;
  },

  overview(kernel) {
    const by = metric();
    const order = [...kernel.statements].filter((s) => by.of(s) > 0).sort((a, b) => by.of(b) - by.of(a)).slice(0, 8);
    const total = kernel.statements.reduce((sum, s) => sum + by.of(s), 0);
    const { busy = [], block_cycles: most = 1 } = kernel.estimate;
    return [
      el("h2", {}, "Dearest statements"),
      el("table", { class: "dearest" }, order.map((s) => el("tr", {},
        el("td", { class: "n" }, percent(by.of(s) / total)),
        el("td", {}, statementLink(s)),
        el("td", { class: "n dim" }, s.place ? `line ${s.place.line}` : "")))),
      el("h2", {}, "Units, as estimated for one block"),
      el("table", {}, busy.map(([unit, cycles]) => el("tr", {},
        el("td", {}, unit, unit === kernel.estimate.bound && el("span", { class: "dim" }, " · the bound")),
        el("td", { style: "width:45%" }, el("span", { class: "meter", style: `width:${(100 * cycles) / Math.max(1, most)}%` })),
        el("td", { class: "n" }, num(cycles))))),
      el("p", { class: "empty" }, "Choose a line for its instruction, its costs and what lost; a tensor's name for its layout. Both are marked in the timeline."),
    ];
  },

  statement(s) {
    const kernel = State.kernel;
    const synchronisation = kernel.synchronisation.filter(([index]) => index === s.index).map(([, note]) => note);
    const requests = kernel.run?.requests.filter((r) => r.statement === s.index) ?? [];
    const tensors = s.tensors.map((name) => kernel.byName.get(name)).filter(Boolean);
    const siblings = s.place ? kernel.byLine.get(lineKey(s.place.file, s.place.line)) : [s];
    return [
      siblings.length > 1 && segmented("Statements of the line", siblings.map((other, i) => [other.index, `${i + 1} of ${siblings.length}`, other.text]), s.index,
        (index) => State.select({ statement: Number(index) }, "inspector")),
      el("p", { class: "title" }, s.text || "Before the first statement"),
      el("div", { class: "chips" },
        el("span", { class: "chip", style: `--chip:var(--${s.kind})` }, KIND_NAMES[s.kind]),
        s.role !== null && el("span", { class: "chip plain" }, `role ${kernel.roles[s.role].name}`),
        s.place && el("span", { class: "chip plain" }, placeText(s.place)),
        s.calls.map((call) => el("span", { class: "chip plain" }, "in ", el("button", { class: "link", type: "button", onclick: () => Source.show(call.place) },
          `${call.name}, ${placeText(call.place)}`)))),
      s.choices.map((choice) => this.choice(s, choice)),
      this.costs(s),
      synchronisation.length > 0 && [el("h2", {}, "Order of accesses"), unique(synchronisation.map((note) => `${note.what}\n${note.why}`)).map((text) => {
        const [what, why] = text.split("\n");
        return el("div", { class: "instruction" }, el("b", {}, what), el("div", { class: "sub" }, why));
      })],
      requests.length > 0 && [el("h2", {}, "Dearest request to shared memory"), requests.map((r) => this.request(r))],
      tensors.length > 0 && [el("h2", {}, "Layouts"), cards(tensors)],
      el("p", {}, el("button", { type: "button", onclick: () => State.select({}, "inspector") }, "Overview")),
    ].flat(3).filter(Boolean);
  },

  choice(s, choice) {
    const facts = [];
    if (choice.global_bytes) facts.push(`${choice.global_bytes}-byte global accesses`);
    if (choice.shared_bytes) facts.push(`${choice.shared_bytes}-byte shared accesses`);
    if (choice.wavefronts) facts.push(`${count(choice.wavefronts, "wavefront")} a block`);
    if (choice.bank_conflicts) facts.push(count(choice.bank_conflicts, "bank conflict"));
    facts.push(`${count(choice.cycles, "issue cycle")} a warp`);
    return [
      el("div", { class: "instruction", style: `--chip:var(--${s.kind})` },
        el("b", {}, choice.calls ? `${num(choice.calls)} × ${choice.instruction}` : choice.instruction === "nothing" ? "no instruction" : choice.instruction),
        choice.count > 1 && el("span", { class: "dim" }, `  in ${choice.count} copies of the statement`),
        el("div", { class: "sub" }, facts.join(" · "))),
      choice.lost.length > 0 && [
        el("h2", {}, "Not taken"),
        el("ul", { class: "lost" }, choice.lost.map(([reason, names]) => el("li", {}, names.map((name) => el("code", {}, name)), el("div", { class: "dim" }, reason)))),
      ],
    ];
  },

  costs(s) {
    if (!s.costs.length) return null;
    const each = (n, ideal, requests) => (requests ? `${(n / requests).toFixed(2)}${n === ideal ? "" : ` (ideal ${(ideal / requests).toFixed(2)})`}` : "");
    const rows = [...s.costs].sort((a, b) => b.issue_cycles + b.stall_cycles - a.issue_cycles - a.stall_cycles);
    return [
      el("h2", {}, "On the simulator"),
      el("table", {},
        el("tr", {}, ["Instruction", "Calls", "Issue", "Stall", "Sectors", "Wavefronts"].map((name, i) => el("th", { class: i ? "n" : "", title: COST_HINTS[i] }, name))),
        rows.map((row) => el("tr", {},
          el("td", { class: "mono" }, row.instruction),
          [row.calls, row.issue_cycles, row.stall_cycles].map((n) => el("td", { class: "n" }, n ? num(n) : "")),
          el("td", { class: "n" }, each(row.global_sectors, row.global_ideal, row.global_requests)),
          el("td", { class: "n" }, each(row.shared_wavefronts, row.shared_ideal, row.shared_requests))))),
    ];
  },

  request(r) {
    return el("div", {},
      el("div", { class: "dim" }, requestText(r)),
      requestPicture(r, $("inspector").clientWidth - 34));
  },

  tensor(tensor) {
    const kernel = State.kernel;
    const users = kernel.statements.filter((s) => s.tensors.includes(tensor.name));
    const named = tensor.word ? kernel.byWord.get(tensor.word) : [tensor];
    const width = Math.max(240, $("inspector").clientWidth - 40);
    return [
      el("p", { class: "title" }, tensorLabel(tensor)),
      el("div", { class: "chips" },
        el("span", { class: "chip", style: `--chip:var(--${tensor.memory === "shared" ? "shared" : "compute"})` }, tensor.memory),
        el("span", { class: "chip plain" }, tensorType(tensor)),
        el("span", { class: "chip plain" }, tensorSize(tensor)),
        tensor.place && el("button", { class: "chip plain", type: "button", onclick: () => Source.show(tensor.place) }, placeText(tensor.place))),
      named.length > 1 && el("p", {}, el("label", {}, "of this name ", el("select", { onchange: (event) => State.select({ tensor: event.target.value }, "inspector") },
        named.map((other) => el("option", { value: other.name, selected: other === tensor }, other.name))))),
      el("div", { class: "instruction", style: `--chip:var(--${tensor.memory === "shared" ? "shared" : "compute"})` },
        el("b", {}, tensor.layout), el("div", { class: "sub" }, tensor.why)),
      pictureOf(tensor, { width }),
      el("h2", {}, "Used by"),
      el("table", {}, users.map((s) => el("tr", {}, el("td", {}, statementLink(s)), el("td", { class: "n dim" }, s.place ? `line ${s.place.line}` : "")))),
      el("p", {}, el("button", { type: "button", onclick: () => State.select({}, "inspector") }, "Overview")),
    ].filter(Boolean);
  },
};

const COST_HINTS = [
  "", "Warp instructions that were executed", "Cycles in which warps issued them", "Cycles for which warps waited in them",
  "Sectors of global memory for each request", "Wavefronts of shared memory for each request",
];

const unique = (list) => [...new Set(list)];

const placeText = (place) => `${PAGE.files.length > 1 ? `${PAGE.files[place.file].path.split("/").pop()}:` : "line "}${place.line}`;

const statementLink = (s) => el("button", {
  class: "link mono", type: "button", onclick: () => { State.select({ statement: s.index }, "link"); if (s.place) Source.show(s.place); },
}, s.text || "before the first statement");

const requestText = (r) =>
  `${r.instruction}, ${r.bytes} bytes a lane, warp ${r.warp} of block ${r.block}: ${count(r.wavefronts, "wavefront")}` +
  (r.wavefronts > r.ideal ? `, ${num(r.wavefronts - r.ideal)} by bank conflicts` : ", no conflict");

/** Cards of tensors that open their layouts. Those that one name of the text stands for share a card. */
function cards(tensors) {
  const groups = new Map();
  for (const tensor of tensors) {
    const key = `${tensor.word ?? tensor.name} ${tensor.layout} ${tensorType(tensor)}`;
    groups.set(key, [...(groups.get(key) ?? []), tensor]);
  }
  return el("div", { class: "cards" }, [...groups.values()].map(([tensor, ...more]) => el("button", {
    class: "card", type: "button", "data-tensor": tensor.name, title: tensor.layout, onclick: () => State.select({ tensor: tensor.name }, "card"),
  }, thumbnail(tensor, 44), el("span", {}, el("b", {}, tensor.word ?? tensorLabel(tensor), more.length > 0 && ` × ${more.length + 1}`),
    el("small", {}, tensorType(tensor)), el("small", {}, tensorSize(tensor))))));
}
