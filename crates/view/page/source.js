// The source, line by line, with costs.

const [KEYWORDS, TYPES] = PAGE.words.map((words) => new Set(words));
const TOKEN = /(\/\/.*$)|("[^"]*")|(\d[\w.]*)|([A-Za-z_]\w*(?:\.(?=async|x\b|y\b|z\b)\w+)?)|(\s+|[^\s\w"]+?(?=\/\/|["\w\s]|$))/g;

const Source = {
  file: 0,

  render() {
    const kernel = State.kernel;
    const metrics = metricsOf(kernel);
    const files = PAGE.files.map((file, i) => [i, file.path.split("/").pop(), file.path]);
    const code = el("div", { id: "code", tabIndex: 0, role: "listbox", "aria-label": "Lines of the program" });
    const lines = PAGE.files[this.file].text.replace(/\n$/, "").split("\n");
    code.append(...lines.map((text, i) => this.line(kernel, text, i + 1)));
    code.addEventListener("keydown", (event) => this.key(event));
    $("source").replaceChildren(
      el("div", { class: "bar-top" },
        files.length > 1
          ? segmented("File", files, this.file, (file) => { this.file = Number(file); this.render(); })
          : el("span", { class: "files" }, files[0][2]),
        el("span", { class: "spacer" }),
        segmented("Cost", Object.entries(metrics).map(([key, m]) => [key, m.name, m.hint]),
          Object.keys(metrics).find((key) => metrics[key] === metric()), (key) => { State.metric = key; this.costs(); })),
      code);
    this.costs();
    this.mark();
    // The kernel's statements matter more than what stands above them.
    const first = code.querySelector(".src.has");
    if (first && lines.length * 20 > code.clientHeight) code.scrollTop = Math.max(0, first.offsetTop - code.offsetTop - 160);
  },

  line(kernel, text, line) {
    const statements = kernel.byLine.get(lineKey(this.file, line)) ?? [];
    const messages = kernel.messagesByLine.get(lineKey(this.file, line)) ?? [];
    const severity = messages.some((m) => m.severity === "error") ? "error" : messages.length ? "warning" : "";
    const select = () => {
      if (statements.length) State.select({ statement: statements[0].index }, "source");
      else if (messages.length) Panels.open("messages");
    };
    return el("div", {
      class: `src${statements.length || messages.length ? " has" : ""}`, id: `line-${line}`, role: "option", "aria-selected": "false", onclick: select,
    },
      el("span", { class: `mark ${severity}`, title: messages.map((m) => m.message).join("\n") }, severity ? "▲" : ""),
      el("span", { class: "no" }, line),
      el("span", { class: "cost" }),
      el("span", { class: "text" }, this.tokens(kernel, text)));
  },

  tokens(kernel, text) {
    const out = [];
    for (const match of text.matchAll(TOKEN)) {
      const [token, comment, string, number, word] = match;
      const tensors = word && kernel.byWord.get(word);
      if (comment) out.push(el("span", { class: "c" }, token));
      else if (string || number) out.push(el("span", { class: "m" }, token));
      else if (tensors) out.push(this.tensor(tensors, token));
      else if (KEYWORDS.has(word)) out.push(el("span", { class: "k" }, token));
      else if (TYPES.has(word)) out.push(el("span", { class: "t" }, token));
      else if (word && text[match.index + token.length] === "(") out.push(el("span", { class: "f" }, token));
      else out.push(token);
    }
    return out;
  },

  tensor(tensors, text) {
    const tensor = tensors[0];
    const open = (event) => {
      event.stopPropagation();
      Tip.hide();
      State.select({ tensor: tensor.name }, "source");
    };
    return el("button", {
      type: "button", class: `tensor ${tensor.memory}`, "data-tensor": tensor.name, tabIndex: -1, onclick: open,
      onmouseenter: (event) => this.peek(event, tensors), onmousemove: (event) => Tip.move(event), onmouseleave: () => Tip.hide(),
    }, text);
  },

  /** A picture of a tensor beside the pointer. */
  peek(event, tensors) {
    const tensor = tensors[0];
    Tip.show(event,
      el("div", { class: "head" }, `${tensorLabel(tensor)}: ${tensor.memory} ${tensorType(tensor)}`),
      el("div", { class: "mono" }, tensor.layout),
      el("div", { class: "dim" }, `${tensorSize(tensor)} · ${tensor.why}`),
      tensors.length > 1 && el("div", { class: "dim" }, `${tensors.length} of this name`),
      thumbnail(tensor, 260));
  },

  /** The bars beside the lines. */
  costs() {
    const kernel = State.kernel, by = metric();
    const total = kernel.statements.reduce((sum, s) => sum + by.of(s), 0);
    const most = Math.max(...[...kernel.byLine.values()].map((list) => list.reduce((sum, s) => sum + by.of(s), 0)), 1);
    const lines = PAGE.files[this.file].text.split("\n").length;
    for (let line = 1; line <= lines; line++) {
      const cell = $(`line-${line}`)?.querySelector(".cost");
      const statements = kernel.byLine.get(lineKey(this.file, line)) ?? [];
      const cost = statements.reduce((sum, s) => sum + by.of(s), 0);
      if (!cell) continue;
      cell.replaceChildren();
      cell.title = "";
      if (!cost) continue;
      const parts = statements.reduce((sum, s) => (by.parts ? by.parts(s) : [by.of(s), 0]).map((n, i) => n + sum[i]), [0, 0]);
      const color = `var(--${statements[0].kind})`;
      cell.title = `${by.unit(cost)}${by.parts ? `: ${num(parts[0])} and ${num(parts[1])} hatched` : ""}`;
      cell.append(
        el("span", { class: "track" },
          el("i", { style: `width:${(100 * parts[0]) / most}%;background-color:${color}` }),
          el("i", { class: "stall", style: `width:${(100 * parts[1]) / most}%;background-color:${color}` })),
        el("span", { class: "pct" }, percent(cost / total)));
    }
  },

  /** Marks the chosen statement's line and tensors. */
  mark() {
    const chosen = State.statement === null ? null : State.kernel.statements[State.statement];
    for (const line of document.querySelectorAll(".src[aria-selected=true]")) line.setAttribute("aria-selected", "false");
    for (const word of document.querySelectorAll(".tensor.lit")) word.classList.remove("lit");
    $("code").removeAttribute("aria-activedescendant");
    if (State.tensor) {
      for (const word of document.querySelectorAll(`.tensor[data-tensor="${CSS.escape(State.tensor)}"]`)) word.classList.add("lit");
    }
    if (chosen?.place?.file !== this.file) return;
    const line = $(`line-${chosen.place.line}`);
    line?.setAttribute("aria-selected", "true");
    $("code").setAttribute("aria-activedescendant", `line-${chosen.place.line}`);
  },

  /** Shows a place. */
  show(place) {
    if (place.file !== this.file) {
      this.file = place.file;
      this.render();
    }
    $(`line-${place.line}`)?.scrollIntoView({ block: "nearest" });
  },

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey) return;
    const kernel = State.kernel;
    const lines = [...kernel.byLine.values()].map((list) => list[0]).filter((s) => s.place.file === this.file);
    lines.sort((a, b) => a.place.line - b.place.line);
    const now = State.statement === null ? -1 : kernel.statements[State.statement].place?.line ?? -1;
    const next = step > 0 ? lines.find((s) => s.place.line > now) : lines.findLast((s) => s.place.line < now);
    event.preventDefault();
    if (!next) return;
    State.select({ statement: next.index }, "keys");
    $(`line-${next.place.line}`).scrollIntoView({ block: "nearest" });
  },
};
