// Small things: elements, numbers as people read them, and questions to the analyzer.
// Names come from agents and may be anything. They become text here, never markup.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  fill(made, attributes, children);
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(made, attributes, children);
  return made;
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") made.addEventListener("click", value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
}

export const by = (id) => document.getElementById(id);

export function go(text, click, label) {
  return el("button", { type: "button", class: "go", click, "aria-label": label }, text);
}

export function table(heads, rows, caption) {
  const head = heads.map(([text, kind]) => el("th", { scope: "col", class: kind }, text));
  const line = (cells) =>
    el("tr", {}, ...cells.map((cell, place) => el("td", { class: heads[place][1] }, cell)));
  const made = el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows.map(line)));
  if (caption) made.prepend(el("caption", { class: "hidden" }, caption));
  return el("div", { class: "scroll" }, made);
}

export function facts(pairs) {
  return el(
    "dl",
    { class: "facts" },
    ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
}

export const count = (number) => Number(number).toLocaleString("en");

export function amount(number) {
  if (!Number.isFinite(number)) return "not known";
  if (number === 0) return "0";
  if (Math.abs(number) < 0.01) return number.toExponential(1);
  return number.toLocaleString("en", { maximumFractionDigits: Math.abs(number) < 100 ? 2 : 0 });
}

export function share(part, whole) {
  if (!whole) return "no probes";
  const percent = (100 * part) / whole;
  if (percent === 0) return "0 %";
  return `${percent < 0.1 ? percent.toFixed(3) : percent < 10 ? percent.toFixed(2) : percent.toFixed(1)} %`;
}

export function duration(nanos) {
  if (nanos === null || nanos === undefined || nanos === 0) return "none";
  if (nanos < 1e3) return `${nanos} ns`;
  if (nanos < 1e6) return `${(nanos / 1e3).toPrecision(3)} µs`;
  if (nanos < 1e9) return `${(nanos / 1e6).toPrecision(3)} ms`;
  return `${(nanos / 1e9).toPrecision(3)} s`;
}

export function time(millis) {
  const at = new Date(millis);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function since(millis, now) {
  const seconds = Math.max(0, Math.round((now - millis) / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export async function ask(path) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), 10000);
  try {
    const answer = await fetch(path, { signal: stop.signal });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error ? body.error.reason : `status ${answer.status}`);
    return body;
  } finally {
    clearTimeout(timer);
  }
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas as sharp as the screen is; sizes are those of the page.
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}
