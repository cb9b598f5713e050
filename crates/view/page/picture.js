// Layouts as pictures.

/** Colours of a register tensor's or a shared tensor's elements, by what they are coloured by. */
const COLOURINGS = {
  register: [
    ["thread", "Lane", "A colour for each lane of a warp"],
    ["warp", "Warp", "A colour for each warp"],
    ["value", "Register", "From the first to the last value of a thread"],
  ],
  shared: [
    ["bank", "Bank", "A colour for each bank of shared memory"],
    ["offset", "Offset", "From the first to the last byte"],
  ],
};

/** A colour of a wheel of `n`. */
function wheel(i, n, step = 0) {
  const light = isDark() ? 44 - 7 * step : 74 - 8 * step;
  return `hsl(${Math.round((360 * i) / n)} ${isDark() ? 48 : 62}% ${light}%)`;
}

/** A colour between the first and the last of a range. */
function ramp(x) {
  const hue = 262 - 205 * x;
  return isDark() ? `hsl(${hue} 52% ${26 + 34 * x}%)` : `hsl(${hue} 58% ${56 + 30 * x}%)`;
}

/** The element at a row and a column of a slice: what it is, its colour and its label. */
function element(tensor, grid, colouring, slice, row, col) {
  const coordinate = grid.coordinate(slice, row, col);
  if (!coordinate) return null;
  if (tensor.memory === "register") {
    const held = Layout.holders(tensor);
    const at = Layout.linear(tensor, coordinate);
    const thread = held.thread[at], value = held.value[at], more = held.count[at] - 1;
    if (thread < 0) return { coordinate, thread, color: css("soft"), label: [] };
    const warp = Math.floor(thread / LANES), lane = thread % LANES;
    const warps = Math.max(1, State.kernel.threads / LANES);
    const values = Math.max(1, Layout.size(tensor.values) - 1);
    const color = { thread: wheel(lane, LANES, warp % 2), warp: wheel(warp, Math.min(warps, 12)), value: ramp(value / values) }[colouring];
    return { coordinate, thread, value, more, warp, lane, color, label: [`T${thread}`, `V${value}${more ? "+" : ""}`] };
  }
  const address = Layout.address(tensor, coordinate), bank = Layout.bank(address);
  const within = address - tensor.offset;
  const color = colouring === "bank" ? wheel(bank, BANKS) : ramp(within / Math.max(1, tensor.size));
  return { coordinate, address, within, bank, color, label: [colouring === "bank" ? `${bank}` : `${within}`] };
}

/** Draws a slice of a tensor: cells of `cell` pixels; `lit` says which elements stand out. */
function drawTensor(ctx, tensor, { colouring, slice = 0, cell, lit = null }) {
  const grid = Layout.grid(tensor);
  const text = cell >= (tensor.memory === "register" ? 26 : 20);
  ctx.clearRect(0, 0, grid.cols * cell, grid.rows * cell);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const gap = cell >= 8 ? 1 : 0;
  for (let row = 0; row < grid.rows; row++) {
    for (let col = 0; col < grid.cols; col++) {
      const found = element(tensor, grid, colouring, slice, row, col);
      if (!found) continue;
      const on = !lit || lit(found);
      ctx.globalAlpha = on ? 1 : 0.16;
      ctx.fillStyle = found.color;
      ctx.fillRect(col * cell, row * cell, cell - gap, cell - gap);
      if (text) {
        ctx.fillStyle = isDark() ? "#fff" : "#10151b";
        ctx.font = `${Math.min(11, cell / 2.7)}px ui-monospace, Menlo, Consolas, monospace`;
        found.label.forEach((line, i) => {
          ctx.fillText(line, (col + 0.5) * cell, (row + 0.5) * cell + (i - (found.label.length - 1) / 2) * cell * 0.36);
        });
      }
    }
  }
  ctx.globalAlpha = 1;
}

/** A small picture for lists; nothing for a tensor whose layout is not known. */
function thumbnail(tensor, most = 64) {
  if (!drawable(tensor)) return null;
  const grid = Layout.grid(tensor);
  const cell = most / Math.max(grid.rows, grid.cols);
  // Below a pixel an element, a part of the tile says as much.
  const scale = Math.max(cell, 1);
  const [node, ctx] = canvas(Math.max(6, Math.min(most, grid.cols * scale)), Math.max(6, Math.min(most, grid.rows * scale)), { "aria-hidden": "true" });
  drawTensor(ctx, tensor, { colouring: COLOURINGS[tensor.memory][0][0], cell: scale });
  return node;
}

const drawable = (tensor) =>
  (tensor.memory === "register" ? tensor.threads.length > 0 : tensor.modes.length > 0 && tensor.bits > 0) &&
  tensor.shape.reduce((a, b) => a * b, 1) <= 1 << 20;

/** An element in words. */
function said(tensor, found) {
  const at = `[${found.coordinate.join(", ")}]`;
  if (tensor.memory === "register") {
    if (found.thread < 0) return `${at} is held by no thread`;
    const others = found.more ? `, and ${count(found.more, "more holder")}` : "";
    return `${at}  thread ${found.thread} (warp ${found.warp}, lane ${found.lane}), value ${found.value}${others}`;
  }
  return `${at}  byte ${found.within} of ${tensor.name}, bank ${found.bank}`;
}

/**
 * A picture of a tensor with its tools. `request` is a warp's request whose elements stand out.
 */
function pictureOf(tensor, { width = 560, request = null } = {}) {
  if (!drawable(tensor)) return el("p", { class: "dim" }, "This layout has no picture.");
  const grid = Layout.grid(tensor);
  let colouring = COLOURINGS[tensor.memory][0][0], slice = 0, held = null;
  const fit = Math.max(2, Math.min(30, Math.floor(width / grid.cols)));
  let cell = fit;
  const cursor = { row: 0, col: 0 };
  const frame = el("div", { class: "frame" });
  const read = el("div", { class: "read", "aria-live": "polite" });
  const reading = request
    ? `the elements that lanes of warp ${request.warp} access`
    : tensor.memory === "register" ? "Point at an element: what its thread holds stands out." : "Point at an element: what lies in its bank stands out.";
  const covered = (found) => request.offsets.some((offset) =>
    offset !== null && found.address + Math.max(1, tensor.bits / 8) > offset && found.address < offset + request.bytes);
  const same = (found) => (tensor.memory === "register" ? found.thread === held.thread : found.bank === held.bank);
  let draw = () => {};
  const place = () => {
    const [node, ctx] = canvas(grid.cols * cell, grid.rows * cell, {
      class: "pixels", tabIndex: 0, role: "img", "aria-label": `Layout of ${tensorLabel(tensor)}, ${grid.rows} rows and ${grid.cols} columns`,
    });
    draw = () => drawTensor(ctx, tensor, { colouring, slice, cell, lit: held ? same : request ? covered : null });
    const hold = (row, col) => {
      const inside = row >= 0 && row < grid.rows && col >= 0 && col < grid.cols;
      const found = inside ? element(tensor, grid, colouring, slice, row, col) : null;
      const key = found && (found.thread ?? found.bank);
      const before = held && (held.thread ?? held.bank);
      held = found;
      if (found) [cursor.row, cursor.col] = [row, col];
      read.textContent = found ? said(tensor, found) : reading;
      if (key !== before) draw();
    };
    node.addEventListener("mousemove", (event) => {
      const box = node.getBoundingClientRect();
      hold(Math.floor((event.clientY - box.top) / cell), Math.floor((event.clientX - box.left) / cell));
    });
    node.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      const within = (n, most) => Math.max(0, Math.min(most - 1, n));
      hold(within(cursor.row + (held ? step[0] : 0), grid.rows), within(cursor.col + (held ? step[1] : 0), grid.cols));
      event.preventDefault();
    });
    node.addEventListener("mouseleave", () => {
      held = null;
      read.textContent = reading;
      draw();
    });
    draw();
    frame.replaceChildren(node);
  };
  const zoom = (factor) => {
    cell = Math.max(2, Math.min(40, Math.round(cell * factor)));
    place();
  };
  const tools = el("div", { class: "tools" },
    segmented("Colours", COLOURINGS[tensor.memory], colouring, (value) => { colouring = value; draw(); }),
    grid.slices > 1 && el("label", {}, "slice ", el("select", { onchange: (event) => { slice = Number(event.target.value); draw(); } },
      Array.from({ length: grid.slices }, (_, i) => el("option", { value: i }, `[…, …, ${grid.coordinate(i, 0, 0).slice(2).join(", ")}]`)))),
    el("span", { class: "seg" },
      el("button", { type: "button", "aria-label": "Smaller", onclick: () => zoom(1 / 1.5) }, "−"),
      el("button", { type: "button", "aria-label": "Larger", onclick: () => zoom(1.5) }, "+")));
  read.textContent = reading;
  place();
  return el("div", { class: "picture" }, tools, frame, read);
}

/** The wavefronts of a request as a picture: banks across, wavefronts down, in each cell the lanes. */
function requestPicture(request, width = 670) {
  const phases = wavefronts(request);
  const rows = phases.flatMap((phase, p) => phase.map((banks, k) => ({ banks, phase: p, extra: k > 0 })));
  const left = 58, top = 18, height = 17, cell = Math.max(11, Math.min(20, Math.floor((width - left - 4) / BANKS)));
  const [node, ctx] = canvas(left + BANKS * cell, top + Math.max(1, rows.length) * height + 2, {
    role: "img", "aria-label": `${count(rows.length, "wavefront")} over 32 banks`,
  });
  ctx.font = `${cell > 14 ? 10 : 8.5}px ui-monospace, Menlo, Consolas, monospace`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  ctx.fillStyle = css("dim");
  for (let bank = 0; bank < BANKS; bank += cell > 14 ? 1 : 2) ctx.fillText(bank, left + (bank + 0.5) * cell, top / 2);
  rows.forEach(({ banks, phase, extra }, i) => {
    const y = top + i * height;
    ctx.textAlign = "left";
    ctx.fillStyle = extra ? css("bad") : css("dim");
    ctx.fillText(extra ? "conflict" : `phase ${phase}`, 2, y + height / 2);
    ctx.textAlign = "center";
    banks.forEach((lanes, bank) => {
      ctx.fillStyle = lanes ? wheel(lanes[0], LANES) : css("soft");
      ctx.fillRect(left + bank * cell, y, cell - 1, height - 1);
      if (!lanes) return;
      ctx.fillStyle = isDark() ? "#fff" : "#10151b";
      ctx.fillText(lanes.length > 1 && cell > 14 ? `${lanes[0]}+` : lanes[0], left + (bank + 0.5) * cell, y + height / 2);
    });
  });
  return el("div", { class: "frame" }, node);
}
