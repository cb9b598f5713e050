// PTX beside the source.

const Ptx = {
  panel() {
    const { ptx, statements } = State.kernel;
    const lines = ptx.lines.map((text, i) => {
      const index = ptx.statements[i];
      const comment = text.trimStart().startsWith("//");
      return index === null
        ? el("div", { class: comment ? "c" : "dim" }, text || " ")
        : el("div", { "data-s": index, style: `--of:var(--${statements[index].kind})` }, text);
    });
    const node = el("div", { class: "ptx", role: "listbox", "aria-label": "PTX", onclick: (event) => {
      const line = event.target.closest("[data-s]");
      if (line && getSelection().isCollapsed) State.select({ statement: Number(line.dataset.s) }, "ptx");
    } }, lines, ptx.cut && el("div", { class: "dim" }, "// the rest is left out"));
    return node;
  },

  /** Marks the lines of the chosen statement, and shows the first. */
  mark(scroll = true) {
    for (const line of document.querySelectorAll(".ptx .lit")) line.classList.remove("lit");
    const place = State.statement === null ? null : State.kernel.statements[State.statement].place;
    if (!place) return;
    // Calls of a function share its places.
    const same = State.kernel.statements.filter((s) => s.place && ["file", "line", "column"].every((key) => s.place[key] === place[key]));
    const lines = same.flatMap((s) => [...document.querySelectorAll(`.ptx [data-s="${s.index}"]`)]);
    lines.forEach((line) => line.classList.add("lit"));
    if (scroll && lines.length) lines[0].scrollIntoView({ block: "center" });
  },
};
