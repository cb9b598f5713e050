// One cluster, cycle by cycle: warps by role, engines, and the stages of pipelines.

const GUTTER = 196;
const AXIS = 22;
const ROW = 17;
const STAGE = 11;
const HEAD = 20;

const Timeline = {
  rows: [],
  from: 0,
  to: 1,
  all: false,
  node: null,
  ctx: null,
  pointer: null,

  reset() {
    const run = State.kernel.run;
    this.data = run?.timeline ?? null;
    this.all = false;
    if (!this.data) return;
    [this.from, this.to] = [0, this.data.cycles * 1.01 + 1];
    this.index();
    this.arrange();
  },

  /** Events by track. */
  index() {
    const { events, tracks } = this.data;
    this.byTrack = tracks.map(() => []);
    for (let i = 0; i < events.track.length; i++) this.byTrack[events.track[i]].push(i);
    for (const list of this.byTrack) list.sort((a, b) => events.start[a] - events.start[b]);
  },

  /** The rows that are shown, from top to bottom. */
  arrange() {
    const kernel = State.kernel, { tracks } = this.data;
    const blocks = unique(tracks.map((t) => t.block));
    const busy = (i) => this.byTrack[i].length > 0;
    this.rows = [];
    const add = (row) => this.rows.push(row);
    for (const block of blocks) {
      const of = tracks.map((t, i) => ({ ...t, i })).filter((t) => t.block === block);
      if (blocks.length > 1) add({ kind: "head", name: `block ${block}`, strong: true });
      const roles = kernel.roles.length ? kernel.roles : [{ name: "every warp", first_warp: 0, warps: kernel.threads / 32, registers: null }];
      roles.forEach((role, r) => {
        const warps = of.filter((t) => t.warp !== null && t.warp >= role.first_warp && t.warp < role.first_warp + role.warps);
        const detail = [count(Math.ceil(role.warps), "warp"), role.registers && `${role.registers} registers`].filter(Boolean).join(", ");
        add({ kind: "head", name: kernel.roles.length ? role.name : "warps", detail });
        const fold = !this.all && (kernel.roles.length > 0 || warps.length > 8);
        // Of the warps of a role, the one that does the most.
        const most = (list) => list.reduce((best, t) => (this.work(t.i) > this.work(best.i) ? t : best), list[0]);
        const shown = fold && warps.length ? [most(warps)] : warps;
        shown.forEach((t) => add({ kind: "track", track: t.i, name: `warp ${t.warp}`, detail: fold && warps.length > 1 ? `of ${warps.length}` : "" }));
        of.filter((t) => t.warp === null && t.role === (kernel.roles.length ? r : t.role) && t.name.startsWith("tensor") && busy(t.i))
          .forEach((t) => add({ kind: "track", track: t.i, name: t.name.replace("tensor cores, warpgroup", "wgmma, group") }));
      });
      const engines = of.filter((t) => t.name === "TMA" && busy(t.i));
      if (engines.length) add({ kind: "head", name: "engines" });
      engines.forEach((t) => this.lanes(t.i).forEach((list, lane) => add({ kind: "track", track: t.i, list, name: lane ? "" : "TMA", flights: true })));
      for (const pipeline of kernel.pipelines) {
        const stages = this.stages(pipeline, block);
        if (!stages) continue;
        add({ kind: "head", name: `pipeline ${pipeline.name}`, detail: count(pipeline.stages, "stage") });
        stages.forEach((fills, stage) => add({ kind: "stage", fills, stage, pipeline: pipeline.name, name: `stage ${stage}` }));
      }
    }
    let y = AXIS;
    for (const row of this.rows) {
      row.y = y;
      row.h = { head: HEAD, track: ROW, stage: STAGE }[row.kind];
      y += row.h;
    }
    this.height = y + 6;
  },

  work(track) {
    const { events } = this.data;
    return this.byTrack[track].reduce((sum, i) => sum + (events.category[i] === 1 ? 0 : events.cycles[i]), 0);
  },

  /** Copies that are in flight at the same time, in lanes. */
  lanes(track) {
    const { events } = this.data;
    const lanes = [];
    for (const i of this.byTrack[track]) {
      const lane = lanes.find((list) => this.end(list[list.length - 1]) <= events.start[i]) ?? (lanes.length < 8 ? lanes[lanes.push([]) - 1] : lanes[7]);
      lane.push(i);
    }
    return lanes;
  },

  end(i) {
    const { events } = this.data;
    return Math.max(events.start[i] + events.cycles[i], events.lands[i]);
  },

  /** By stage, the times at which it began to fill, was full, and was free again. */
  stages(pipeline, block) {
    const { events, phases, tracks } = this.data;
    const of = phases.filter((p) => p.block === block && p.pipeline === pipeline.name);
    if (!of.length) return null;
    const times = (stage, full) => of.filter((p) => p.stage === stage && p.full === full).map((p) => p.time).sort((a, b) => a - b);
    const stages = Array.from({ length: pipeline.stages }, (_, stage) => {
      const [full, free] = [times(stage, true), times(stage, false)];
      return full.map((at, k) => ({ begin: null, full: at, free: free[k] ?? this.data.cycles }));
    });
    // Fills take the stages in turns, with as many copies each.
    const copies = [];
    events.track.forEach((track, i) => {
      const statement = State.kernel.statements[events.statement[i]];
      if (events.category[i] === 2 && tracks[track].block === block && statement?.tensors.some((name) => pipeline.tensors.includes(name))) copies.push(events.start[i]);
    });
    copies.sort((a, b) => a - b);
    const fills = stages.reduce((sum, list) => sum + list.length, 0);
    const each = fills && copies.length % fills === 0 ? copies.length / fills : 0;
    stages.forEach((list, stage) => list.forEach((fill, k) => {
      const before = k ? list[k - 1].free : 0;
      const first = each ? copies[(k * pipeline.stages + stage) * each] : undefined;
      fill.begin = Math.min(fill.full, Math.max(before, first ?? before));
    }));
    return stages;
  },

  panel() {
    if (!this.data) return el("div", { class: "pad empty" }, `No timeline: ${State.kernel.not_run}`);
    const { run } = State.kernel;
    this.node = el("canvas", { tabIndex: 0, role: "img", "aria-label": `Timeline of ${num(this.data.cycles)} cycles, ${this.rows.length} rows` });
    this.node.addEventListener("keydown", (event) => this.key(event));
    this.node.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.node.addEventListener("pointerdown", (event) => this.drag(event));
    this.node.addEventListener("pointermove", (event) => this.hover(event));
    this.node.addEventListener("pointerleave", () => { this.pointer = null; Tip.hide(); this.draw(); });
    const used = unique(State.kernel.statements.filter((s) => s.costs.length).map((s) => s.kind));
    const legend = el("div", { class: "legend" },
      KINDS.filter((kind) => used.includes(kind)).map((kind) => el("span", {}, el("i", { style: `background:var(--${kind})` }), KIND_NAMES[kind])),
      el("span", {}, el("i", { class: "stall", style: "background-color:var(--synchronisation);opacity:.6" }), "waits"),
      el("span", {}, el("i", { style: "background:var(--global);opacity:.35" }), "in flight"));
    const button = (text, label, action) => el("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    return el("div", { class: "timeline" },
      el("div", { class: "bar-top" },
        button("−", "Show more cycles", () => this.zoom(1.6)), button("+", "Magnify", () => this.zoom(1 / 1.6)), button("Fit", "All cycles", () => this.fit()),
        el("button", { type: "button", "aria-pressed": this.all, onclick: (event) => {
          this.all = !this.all;
          event.target.setAttribute("aria-pressed", this.all);
          this.arrange();
          this.ready();
        } }, "All warps"),
        legend, el("span", { class: "spacer" }),
        el("span", { class: "dim" }, `${run.smaller ? "smaller sizes: " : ""}${[...Object.entries(run.sizes).map(([n, v]) => `${n}=${v}`), "·"].join(" ")} drag, ctrl + wheel, or keys`,
          this.data.cut !== null && ` · events after cycle ${num(this.data.cut)} are left out`)),
      el("div", { class: "view" }, this.node));
  },

  /** Fits the canvas to the panel. */
  ready() {
    if (Panels.now !== "timeline" || !this.data || !this.node?.isConnected) return;
    const scale = window.devicePixelRatio || 1;
    this.width = this.node.parentNode.clientWidth;
    this.node.width = Math.round(this.width * scale);
    this.node.height = Math.round(this.height * scale);
    this.node.style.height = `${this.height}px`;
    this.ctx = this.node.getContext("2d");
    this.ctx.setTransform(scale, 0, 0, scale, 0, 0);
    this.draw();
  },

  x(cycle) {
    return GUTTER + ((cycle - this.from) * (this.width - GUTTER - 8)) / (this.to - this.from);
  },

  cycle(x) {
    return this.from + ((x - GUTTER) * (this.to - this.from)) / (this.width - GUTTER - 8);
  },

  draw() {
    const { ctx } = this;
    if (!ctx || !this.data || !this.node.isConnected) return;
    this.colors = Object.fromEntries([...KINDS, "text", "dim", "faint", "line", "soft", "panel", "accent", "hatch", "sunken"].map((name) => [name, css(name)]));
    const c = this.colors;
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.textBaseline = "middle";
    this.axis();
    for (const row of this.rows) {
      if (row.kind === "head") this.head(row);
      else if (row.kind === "stage") this.stageRow(row);
      else this.trackRow(row);
    }
    ctx.fillStyle = c.line;
    ctx.fillRect(GUTTER - 1, 0, 1, this.height);
    if (this.pointer !== null) {
      ctx.fillStyle = c.accent;
      ctx.fillRect(this.x(this.pointer), AXIS - 4, 1, this.height);
    }
  },

  axis() {
    const { ctx, colors: c } = this;
    const rough = (this.to - this.from) / Math.max(2, (this.width - GUTTER) / 110);
    const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    ctx.font = "11px system-ui, sans-serif";
    ctx.textAlign = "left";
    ctx.fillStyle = c.dim;
    ctx.fillText("cycles", 12, AXIS / 2);
    ctx.textAlign = "center";
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.x(at);
      ctx.fillStyle = c.soft;
      ctx.fillRect(x, AXIS, 1, this.height);
      ctx.fillStyle = c.dim;
      ctx.fillText(num(at), Math.max(x, GUTTER + 14), AXIS / 2);
    }
  },

  head(row) {
    const { ctx, colors: c } = this;
    ctx.fillStyle = c.sunken;
    ctx.fillRect(0, row.y, this.width, row.h);
    ctx.textAlign = "left";
    ctx.font = "600 11.5px system-ui, sans-serif";
    ctx.fillStyle = c.text;
    ctx.fillText(row.name, 12, row.y + row.h / 2 + 0.5);
    const width = ctx.measureText(row.name).width;
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = c.dim;
    ctx.fillText(row.detail ?? "", 20 + width, row.y + row.h / 2 + 0.5);
  },

  label(row) {
    const { ctx, colors: c } = this;
    ctx.textAlign = "left";
    ctx.font = `${row.kind === "stage" ? 10 : 11}px system-ui, sans-serif`;
    ctx.fillStyle = c.dim;
    ctx.fillText(row.detail ? `${row.name} ${row.detail}` : row.name, 24, row.y + row.h / 2 + 0.5);
  },

  trackRow(row) {
    const { ctx, colors: c } = this;
    const { events } = this.data;
    const chosen = State.statement;
    const dimmed = chosen !== null || State.tensor !== null;
    this.label(row);
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, row.y, this.width - GUTTER, row.h);
    ctx.clip();
    ctx.font = "10.5px ui-monospace, Menlo, Consolas, monospace";
    ctx.textAlign = "left";
    for (const i of row.list ?? this.byTrack[row.track]) {
      if (events.start[i] > this.to || this.end(i) < this.from) continue;
      const statement = State.kernel.statements[events.statement[i]];
      const wait = events.category[i] === 1;
      const x = this.x(events.start[i]), width = Math.max(0.6, this.x(events.start[i] + events.cycles[i]) - x - (wait ? 0 : 0.4));
      const lit = events.statement[i] === chosen || (State.tensor !== null && statement?.tensors.includes(State.tensor));
      const color = c[statement?.kind ?? "control"];
      const [y, h] = [row.y + 2, row.h - 4];
      ctx.globalAlpha = dimmed && !lit ? 0.28 : 1;
      if (events.lands[i] > 0) {
        ctx.globalAlpha *= 0.35;
        ctx.fillStyle = color;
        ctx.fillRect(x, y + 2, Math.max(1, this.x(events.lands[i]) - x), h - 4);
        ctx.globalAlpha = dimmed && !lit ? 0.28 : 1;
      }
      if (wait) this.hatched(x, y, width, h, lit);
      else {
        ctx.fillStyle = color;
        ctx.fillRect(x, y, width, h);
      }
      if (width > 46) {
        const text = (wait ? "" : statement?.text) || this.data.names[events.name[i]];
        ctx.fillStyle = wait ? c.dim : isDark() ? "#0b0f14" : "#fff";
        ctx.fillText(clipped(ctx, text, width - 8), Math.max(x, GUTTER) + 4, y + h / 2 + 0.5);
      }
    }
    ctx.restore();
  },

  hatched(x, y, width, height, lit) {
    const { ctx, colors: c } = this;
    ctx.fillStyle = c.soft;
    ctx.fillRect(x, y, width, height);
    if (width < 3) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, width, height);
    ctx.clip();
    ctx.strokeStyle = lit ? c.accent : c.hatch;
    ctx.lineWidth = 1;
    ctx.beginPath();
    const left = Math.max(x, GUTTER), right = Math.min(x + width, this.width);
    for (let at = left - (left % 5) - height; at < right; at += 5) {
      ctx.moveTo(at, y + height);
      ctx.lineTo(at + height, y);
    }
    ctx.stroke();
    ctx.restore();
  },

  stageRow(row) {
    const { ctx, colors: c } = this;
    this.label(row);
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, row.y, this.width - GUTTER, row.h);
    ctx.clip();
    for (const { begin, full, free } of row.fills) {
      if (begin > this.to || free < this.from) continue;
      ctx.globalAlpha = 0.35;
      ctx.fillStyle = c.global;
      ctx.fillRect(this.x(begin), row.y + 2, Math.max(0.5, this.x(full) - this.x(begin)), row.h - 4);
      ctx.globalAlpha = 1;
      ctx.fillStyle = c.shared;
      ctx.fillRect(this.x(full), row.y + 2, Math.max(0.5, this.x(free) - this.x(full) - 0.5), row.h - 4);
    }
    ctx.restore();
  },

  /** The event or the fill of a stage under the pointer. */
  find(event) {
    const box = this.node.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const row = this.rows.find((r) => py >= r.y && py < r.y + r.h);
    if (!row || px < GUTTER || row.kind === "head") return { row, px };
    const at = this.cycle(px), near = (1.5 * (this.to - this.from)) / this.width;
    if (row.kind === "stage") return { row, px, fill: row.fills.find((f) => f.begin <= at && at <= f.free) };
    const { events } = this.data;
    const list = row.list ?? this.byTrack[row.track];
    const hits = list.filter((i) => events.start[i] - near <= at && at <= this.end(i) + near);
    const exact = hits.filter((i) => events.start[i] <= at && at <= this.end(i));
    return { row, px, event: exact[exact.length - 1] ?? hits[0] };
  },

  hover(event) {
    if (this.node.classList.contains("drag")) return;
    const found = this.find(event);
    this.pointer = found.px >= GUTTER ? this.cycle(found.px) : null;
    this.draw();
    if (found.event !== undefined) Tip.show(event, ...this.told(found.event));
    else if (found.fill) {
      const { begin, full, free } = found.fill;
      Tip.show(event, el("div", { class: "head" }, `${found.row.pipeline}, ${found.row.name}`),
        el("div", {}, `filled from ${num(begin)} to ${num(full)} (${num(full - begin)} cycles)`),
        el("div", {}, `full until ${num(free)} (${num(free - full)} cycles)`));
    } else Tip.hide();
  },

  told(i) {
    const { events, names } = this.data;
    const statement = State.kernel.statements[events.statement[i]];
    const lines = [`cycles ${num(events.start[i])} to ${num(events.start[i] + events.cycles[i])}: ${num(events.cycles[i])}`];
    if (events.stall[i]) lines.push(`${num(events.stall[i])} of them stalled`);
    if (events.bytes[i]) lines.push(bytes(events.bytes[i]));
    if (events.lands[i]) lines.push(`there at ${num(events.lands[i])}, ${num(events.lands[i] - events.start[i])} cycles after its start`);
    if (events.category[i] === 1 && statement) lines.push(`in ${statement.text}`);
    const place = statement?.place ? placeText(statement.place) : "";
    return [
      el("div", { class: "head" }, (events.category[i] === 1 ? "" : statement?.text) || names[events.name[i]] || "before the first statement"),
      ...lines.map((line) => el("div", {}, line)),
      el("div", { class: "dim" }, [CATEGORIES[events.category[i]], place].filter(Boolean).join(" · ")),
    ];
  },

  drag(event) {
    const start = event.clientX, [from, to] = [this.from, this.to];
    let moved = false;
    this.node.setPointerCapture(event.pointerId);
    const move = (e) => {
      const by = ((e.clientX - start) * (to - from)) / (this.width - GUTTER - 8);
      if (!moved && Math.abs(e.clientX - start) < 4) return;
      moved = true;
      this.node.classList.add("drag");
      Tip.hide();
      this.show(from - by, to - by);
    };
    this.node.addEventListener("pointermove", move);
    this.node.addEventListener("pointerup", (e) => {
      this.node.removeEventListener("pointermove", move);
      this.node.classList.remove("drag");
      if (moved) return;
      const found = this.find(e);
      const statement = found.event === undefined ? null : this.data.events.statement[found.event];
      State.select({ statement }, "timeline");
    }, { once: true });
  },

  /** Shows some cycles, as far as there are any. */
  show(from, to) {
    const most = this.data.cycles * 1.01 + 1;
    const width = Math.min(most, Math.max(20, to - from));
    this.from = Math.min(Math.max(0, from), most - width);
    this.to = this.from + width;
    this.draw();
  },

  zoom(factor, at = (this.from + this.to) / 2) {
    if (!this.data) return;
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  },

  fit() {
    this.show(0, Infinity);
  },

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max(this.from, this.cycle(event.offsetX)));
      event.preventDefault();
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = ((event.deltaX || event.deltaY) * (this.to - this.from)) / this.width;
      this.show(this.from + by, this.to + by);
      event.preventDefault();
    }
  },

  key(event) {
    const width = this.to - this.from;
    const actions = {
      ArrowLeft: () => this.show(this.from - width / 8, this.to - width / 8),
      ArrowRight: () => this.show(this.from + width / 8, this.to + width / 8),
      "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1.4), "−": () => this.zoom(1.4), 0: () => this.fit(),
    };
    if (!actions[event.key]) return;
    actions[event.key]();
    event.preventDefault();
  },

  /** Goes to the next or previous time that the chosen statement runs. */
  jump(by) {
    if (!this.data || State.statement === null) return;
    const { events } = this.data;
    const starts = [...new Set(events.start.filter((_, i) => events.statement[i] === State.statement))].sort((a, b) => a - b);
    const middle = (this.from + this.to) / 2, width = Math.min(this.to - this.from, this.data.cycles / 8);
    const next = by > 0 ? starts.find((at) => at > middle + 1) : starts.findLast((at) => at < middle - 1);
    if (next !== undefined) this.show(next - width / 2, next + width / 2);
  },
};

/** A text that fits, with an ellipsis where it is cut. */
function clipped(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  const each = ctx.measureText("m").width || 6;
  return `${text.slice(0, Math.max(0, Math.floor(width / each) - 1))}…`;
}
