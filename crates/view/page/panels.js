// The panels below the source.

const Panels = {
  now: "timeline",

  list: [
    ["timeline", "Timeline", () => Timeline.panel()],
    ["memory", "Shared memory", () => Panels.memory()],
    ["tensors", "Tensors", () => Panels.tensors(), (k) => [k.tensors.length]],
    ["candidates", "Candidates", () => Panels.candidates(), (k) => [k.candidates.length]],
    ["ptx", "PTX", () => Ptx.panel(), (k) => [k.ptx.lines.length]],
    ["compiler", "Compiler", () => Panels.compiler()],
    ["messages", "Messages", () => Panels.messages(), (k) => [k.messages.length, k.messages.some((m) => m.severity === "error") ? "bad" : "warn"]],
  ],

  render() {
    const tabs = $("tabs");
    tabs.replaceChildren(...this.list.map(([key, name, , counted]) => {
      const [n, tone = ""] = counted ? counted(State.kernel) : [0];
      return el("button", {
        type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "panel", onclick: () => this.open(key),
      }, name, n > 0 && el("span", { class: `count ${tone}` }, n));
    }));
    this.open(this.now);
  },

  open(key) {
    this.now = key;
    for (const tab of $("tabs").children) {
      const on = tab.id === `tab-${key}`;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
    }
    const content = this.list.find(([name]) => name === key)[2]();
    $("panel").setAttribute("aria-labelledby", `tab-${key}`);
    $("panel").replaceChildren(content);
    if (key === "timeline") Timeline.ready();
    if (key === "ptx") Ptx.mark();
  },

  step(by) {
    const keys = this.list.map(([key]) => key);
    this.open(keys[(keys.indexOf(this.now) + by + keys.length) % keys.length]);
    $(`tab-${this.now}`).focus();
  },

  memory() {
    const kernel = State.kernel;
    const shared = kernel.tensors.filter((tensor) => tensor.memory === "shared");
    if (!kernel.buffers.length) return el("div", { class: "pad empty" }, "The kernel uses no shared memory.");
    const picture = el("div"), requests = el("div", { class: "requests" });
    const open = (tensor, request = null) => {
      const width = Math.max(240, picture.clientWidth || 480);
      picture.replaceChildren(
        el("h2", {}, `Banks of ${tensor.name}`),
        el("div", { class: "mono dim" }, `${tensorType(tensor)}  ${tensor.layout}`),
        pictureOf(tensor, { width, request }));
      const of = kernel.run?.requests.filter((r) => r.tensor === tensor.name) ?? [];
      requests.replaceChildren(
        el("h2", {}, "Dearest requests of a warp"),
        of.length === 0 ? el("p", { class: "empty" }, kernel.run ? "Threads do not access it one by one: asynchronous engines do." : "Known after a run.") : "",
        ...of.map((r) => el("button", {
          type: "button", "aria-pressed": r === request, onclick: () => open(tensor, r === request ? null : r),
        }, el("span", { class: "mono" }, kernel.statements[r.statement]?.text ?? r.instruction), el("small", {}, requestText(r)))),
        ...(request ? [requestPicture(request, requests.clientWidth)] : []));
    };
    const end = Math.max(kernel.shared_bytes, ...kernel.buffers.map((b) => b.offset + b.bytes));
    const map = el("div", { class: "alloc" }, kernel.buffers.map((buffer) => {
      const tensor = shared.find((t) => t.name === buffer.name);
      const bar = el("div", { class: "lane" }, el("i", { style: `left:${(100 * buffer.offset) / end}%;width:${(100 * buffer.bytes) / end}%${tensor ? "" : ";background:var(--control)"}` }));
      return [tensor ? el("button", { type: "button", onclick: () => open(tensor) }, buffer.name) : el("span", { class: "mono dim" }, buffer.name), bar, el("span", { class: "mono dim" }, `${num(buffer.offset)} + ${num(buffer.bytes)}`)];
    }));
    const all = kernel.run
      ? el("p", { class: "dim" }, `${count(kernel.run.shared_wavefronts, "wavefront")} in the run, ${num(kernel.run.shared_conflicts)} of them by bank conflicts`)
      : null;
    const panel = el("div", { class: "memory" },
      el("div", {}, el("h2", {}, `Map of a block's ${bytes(kernel.shared_bytes)} of ${bytes(kernel.shared_limit)}`), map, all),
      picture, requests);
    const chosen = shared.find((t) => t.name === State.tensor) ?? shared[0];
    if (chosen) requestAnimationFrame(() => open(chosen, kernel.run?.requests.find((r) => r.tensor === chosen.name && r.wavefronts > r.ideal) ?? null));
    return panel;
  },

  tensors() {
    const kernel = State.kernel;
    const of = (memory) => kernel.tensors.filter((tensor) => tensor.memory === memory);
    const part = (name, tensors) => (tensors.length ? [el("h2", {}, name), cards(tensors)] : null);
    return el("div", { class: "pad" }, part("Shared memory", of("shared")), part("Registers", of("register")));
  },

  candidates() {
    const kernel = State.kernel;
    const order = [...kernel.candidates].sort((a, b) => b.chosen - a.chosen || (a.estimate?.cycles ?? Infinity) - (b.estimate?.cycles ?? Infinity) || a.number - b.number);
    const least = Math.min(...order.map((c) => c.estimate?.cycles ?? Infinity)), most = Math.max(...order.map((c) => c.estimate?.cycles ?? 0), 1);
    const counted = (names) => {
      const found = new Map();
      names.forEach((name) => found.set(name, (found.get(name) ?? 0) + 1));
      return [...found].map(([name, n]) => (n > 1 ? `${n} × ${name}` : name)).join(", ");
    };
    if (!order.length) return el("div", { class: "pad empty" }, "There was nothing to choose between.");
    return el("div", { class: "pad" },
      el("p", { class: "dim" }, `${count(kernel.search.candidates, "candidate")} looked at in ${count(kernel.search.steps, "step")}: ${kernel.search.stopped}. One that is not taken can be asked for with --candidate N.`),
      el("table", {},
        el("tr", {}, [["No.", "n"], ["Estimate", "n"], ["of the least", "n"], ["Bound"], ["Arrangement and instructions"], ["Reason"]].map(([name, c = ""]) => el("th", { class: c }, name))),
        order.map((c) => el("tr", { class: c.chosen ? "chosen" : "" },
          el("td", { class: "n" }, c.number),
          el("td", { class: "n" }, c.estimate ? num(c.estimate.cycles) : "impossible"),
          el("td", { class: "n", style: "min-width:150px" }, c.estimate && [`${(c.estimate.cycles / least).toFixed(3)} `, el("span", { class: "bar" }, el("span", { class: "meter", style: `width:${(100 * c.estimate.cycles) / most}%` }))]),
          el("td", {}, c.estimate?.bound ?? ""),
          el("td", { class: "mono" }, c.arrangements.map((text) => el("div", {}, text)), el("div", { class: "dim" }, counted(c.instructions))),
          el("td", {}, c.chosen ? el("b", {}, "Taken: ") : "", c.why)))));
  },

  compiler() {
    const kernel = State.kernel;
    const section = (name, ...content) => el("section", {}, el("h2", {}, name), content);
    const total = kernel.passes.reduce((sum, [, ms]) => sum + ms, 0);
    const components = unique(kernel.constraints.map((c) => c.component));
    const release = (delay) => (delay.stages === 0 ? "at the end of `consume`" : delay === "counted" ? "when the products that read it are waited for, counted by age" : `when the products that read it are waited for, at most ${count(delay.stages, "stage")} later`);
    return el("div", { class: "pad columns" },
      kernel.pipelines.map((p) => section(`Pipeline ${p.name}`, el("table", {}, [
        ["stages", `${p.stages} of ${p.tensors.join(", ")}`],
        ["full", `${count(p.full_arrivals, "arrival")}, ${bytes(p.tx_bytes)} of tensor copies`],
        ...(p.hand_over_delay > 0 ? [["handed on", `${count(p.hand_over_delay, "stage")} later, when the copies of its threads have arrived`]] : []),
        ["empty", `${count(p.empty_arrivals, "arrival")}${p.multicast > 1 ? ` from ${p.multicast} blocks` : ""}`],
        ["release", release(p.release_delay)],
        ["barriers", `at byte ${num(p.barriers)}`],
      ].map(([name, text]) => el("tr", {}, el("td", { class: "dim" }, name), el("td", {}, text)))))),
      kernel.synchronisation.length > 0 && section("Order of accesses", unique(kernel.synchronisation.map(([index, note]) => `${index ?? ""}\t${note.text}\t${note.what}\t${note.why}`)).map((text) => {
        const [index, statement, what, why] = text.split("\t");
        return el("div", { class: "instruction" }, index === "" ? el("code", {}, statement) : statementLink(kernel.statements[Number(index)]), el("div", {}, el("b", {}, what)), el("div", { class: "sub" }, why));
      })),
      kernel.inserted.length > 0 && section("Inserted", kernel.inserted.map((text) => el("div", {}, text))),
      components.map((component) => section(`Equations of component ${component}`, el("table", {}, kernel.constraints.filter((c) => c.component === component)
        .map((c) => el("tr", {}, el("td", { class: "mono" }, c.equation), el("td", { class: "mono dim" }, c.statement)))))),
      section(`Passes, ${total.toFixed(1)} ms`, el("table", {}, kernel.passes.map(([name, ms]) => el("tr", {},
        el("td", {}, name), el("td", { style: "width:40%" }, el("span", { class: "meter", style: `width:${(100 * ms) / total}%` })), el("td", { class: "n" }, `${ms.toFixed(2)} ms`))))));
  },

  messages() {
    const { messages, run } = State.kernel;
    const link = (place) => place && el("button", { class: "link", type: "button", onclick: () => goTo(place) }, placeText(place));
    return el("div", { class: "pad" },
      run?.results.map((r) => el("p", { class: r.wrong ? "" : "dim" }, el("span", { class: `badge ${r.wrong ? "bad" : "good"}` }, r.wrong ? `${num(r.wrong)} wrong` : "right"), ` ${r.name}: ${r.text}`)),
      messages.length === 0 && el("p", { class: "empty" }, "No warning."),
      messages.map((m) => el("div", { class: `msg ${m.severity}` },
        el("div", {}, el("span", { class: "code" }, `${m.severity}[${m.code}] `), m.message),
        el("div", {}, link(m.place), m.label && ` ${m.label}`),
        m.related.map((r) => el("div", {}, link(r.place), ` ${r.message}`)),
        m.notes.map((note) => el("div", { class: "dim" }, `note: ${note}`)),
        m.help && el("div", { class: "help" }, `help: ${m.help}`))));
  },
};

/** Shows a place, and chooses the statement there. */
function goTo(place) {
  const [s] = State.kernel.byLine.get(lineKey(place.file, place.line)) ?? [];
  if (s) State.select({ statement: s.index }, "link");
  Source.show(place);
}
