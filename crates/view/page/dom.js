// Elements, and numbers as text.

/** An element with properties, `on…` listeners, `data` and children. */
function el(name, props = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("aria")) node.setAttribute(key, value);
    if (value === undefined || value === null || value === false || key.startsWith("aria")) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key === "style") node.style.cssText = value;
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const $ = (id) => document.getElementById(id);

/** A whole number in groups of three digits. */
function num(n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** A number of things: `1 call`, `4 calls`. */
function count(n, word) {
  return `${num(n)} ${word}${n === 1 ? "" : "s"}`;
}

/** Bytes in the largest unit that leaves few digits. */
function bytes(n) {
  if (n < 4096 && n % 1024) return `${num(n)} B`;
  if (n < 4 << 20) return `${trim(n / 1024)} KiB`;
  return `${trim(n / (1 << 20))} MiB`;
}

function trim(x) {
  return x >= 100 || Number.isInteger(x) ? num(x) : x.toFixed(1);
}

/** A part of a whole in per cent. */
function percent(part) {
  if (part <= 0) return "";
  return part < 0.001 ? "<0.1%" : `${(100 * part).toFixed(1)}%`;
}

/** A colour of the style sheet. */
function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const isDark = () => document.documentElement.dataset.theme === "dark";

/** Buttons of which one is chosen. */
function segmented(label, options, chosen, choose) {
  const group = el("div", { class: "seg", role: "radiogroup", "aria-label": label });
  const show = (value) => {
    for (const button of group.children) {
      const on = button.value === String(value);
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
  };
  for (const [value, text, hint] of options) {
    group.append(el("button", {
      type: "button", role: "radio", value: String(value), title: hint,
      onclick: () => { show(value); choose(value); },
    }, text));
  }
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const buttons = [...group.children];
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
    event.preventDefault();
    event.stopPropagation();
  });
  show(chosen);
  return group;
}

/** A canvas for crisp pixels: its size is in pixels of the page. */
function canvas(width, height, props = {}) {
  const scale = window.devicePixelRatio || 1;
  const node = el("canvas", { ...props, width: Math.round(width * scale), height: Math.round(height * scale) });
  node.style.width = `${width}px`;
  node.style.height = `${height}px`;
  const ctx = node.getContext("2d");
  ctx.scale(scale, scale);
  return [node, ctx];
}

const Tip = {
  show(event, ...content) {
    const tip = $("tip");
    tip.replaceChildren(...content);
    tip.hidden = false;
    this.move(event);
  },
  move(event) {
    const tip = $("tip");
    const box = tip.getBoundingClientRect();
    let x = event.clientX + 16, y = event.clientY + 18;
    if (x + box.width > innerWidth - 8) x = Math.max(8, event.clientX - box.width - 12);
    if (y + box.height > innerHeight - 8) y = Math.max(8, event.clientY - box.height - 12);
    tip.style.left = `${x}px`;
    tip.style.top = `${y}px`;
  },
  hide() {
    $("tip").hidden = true;
  },
};
