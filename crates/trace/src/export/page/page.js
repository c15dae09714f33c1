// What people do: look closer, move, search, choose.

const byId = (name) => document.getElementById(name);
const details = byId("details");

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function fieldList(fields, header) {
  const list = element("dl", null);
  for (const [key, text, value] of fields) {
    list.append(element("dt", text), element("dd", value, { "data-field": key, "data-header": header }));
  }
  return list;
}

const laneName = (lane) => {
  const { process, qpn, address, isKnown } = lanes[lane];
  return isKnown ? `${process}, QP ${qpn}` : `QP ${qpn}${address ? ` at ${address}` : ""}, not recorded`;
};
const statusName = (code) => told.statuses[code] ?? "not over";
const operation = (work) => told.operations[columns.op[work]] ?? "work";
const TAGS = [
  [FLAG.repeat, "sent again", ""],
  [FLAG.taken, "taken by fault injection", "bad"],
  [FLAG.doubled, "doubled by fault injection", ""],
  [FLAG.delayed, "held back by fault injection", ""],
  [FLAG.damaged, "damaged by fault injection", "bad"],
  [FLAG.refused, "refused", "bad"],
  [FLAG.congestion, "marked for congestion", ""],
  [FLAG.local, "in its process", ""],
];

function turnButtons() {
  const row = element("div", null, { class: "turn" });
  for (const [text, step] of [["‹ Packet before", -1], ["Packet after ›", 1]]) {
    const button = element("button", text, { type: "button" });
    button.addEventListener("click", () => turn(step));
    row.append(button);
  }
  return row;
}

function workFields(work) {
  const time = (value) => (Number.isNaN(value) ? "–" : since(value));
  const marks = columns.mark[work];
  const end = marks & MARK.quiet ? "none, not signaled" : marks & MARK.forgotten ? "none, forgotten" : marks & MARK.overrun ? "lost, the queue was full" : time(columns.completed[work]);
  return [
    ["work_number", "Work", `${marks & MARK.receive ? "receive" : "send"} ${columns.number[work]}`],
    ["work_operation", "Operation", operation(work)],
    ["work_id", "Id", hex(columns.id[work], 1)],
    ["work_length", "Bytes", number(columns.length[work])],
    ["posted", "Posted", time(columns.posted[work])],
    ["doorbell", "Doorbell", time(columns.bell[work])],
    ["begun", "Begun", time(columns.begun[work])],
    ["completed", "Completed", end],
    ["polled", "Polled", time(columns.polled[work])],
    ["status", "Status", statusName(columns.status[work])],
  ];
}

function showArrow(arrow) {
  const flags = columns.flags[arrow];
  const [sent, came] = [columns.sent[arrow], columns.came[arrow]];
  const parts = [turnButtons(), element("h2", told.opcodes[opcodeOf(arrow)]?.[0] ?? "No known opcode")];
  parts.push(element("p", `packet ${number(arrow + 1)} of ${number(count)}`));
  for (const [flag, text, kind] of TAGS) if (flags & flag) parts.push(element("span", text, { class: `tag ${kind}` }));
  if (isLost(arrow) && !(flags & (FLAG.taken | FLAG.refused))) parts.push(element("span", "not seen at the other end", { class: "tag bad" }));
  parts.push(element("h3", "Packet"));
  parts.push(
    fieldList(
      [
        ["from", "From", laneName(columns.from[arrow])],
        ["to", "To", laneName(columns.to[arrow])],
        ["sent", "Left", Number.isNaN(sent) ? "not recorded" : since(sent)],
        ["came", "Came", Number.isNaN(came) ? "not recorded" : since(came)],
        ["flight", "Under way", Number.isNaN(came - sent) ? "–" : span(came - sent)],
        ["payload", "Payload", `${number(columns.payload[arrow])} bytes`],
        ["repeat", "Sent before", `${columns.repeat[arrow]} times`],
      ],
      "packet",
    ),
  );
  for (const { key, title, fields } of decode(arrow)) parts.push(element("h3", title), fieldList(fields, key));
  const bytes = [...headerBytes(arrow)].map((byte) => byte.toString(16).padStart(2, "0"));
  parts.push(element("div", bytes.join(" "), { class: "bytes", "data-field": "bytes" }));
  const work = workOfKey.get(columns.work[arrow]);
  if (work !== undefined) parts.push(element("h3", `Work of ${laneName(columns.lane[work])}`), fieldList(workFields(work), "work"));
  details.replaceChildren(...parts);
  details.scrollTop = 0;
}

function showWork(work) {
  const parts = [turnButtons(), element("h2", operation(work)), element("p", laneName(columns.lane[work]))];
  const status = columns.status[work];
  if (status !== 0 && status !== NONE) parts.push(element("span", statusName(status), { class: "tag bad" }));
  if (columns.mark[work] & MARK.local) parts.push(element("span", "local path, no packets", { class: "tag" }));
  parts.push(fieldList(workFields(work), "work"));
  details.replaceChildren(...parts);
  details.scrollTop = 0;
}

function showNothing() {
  const text = count ? "Click an arrow to read its headers, or a bar to read its work request." : "";
  details.replaceChildren(element("p", text, { class: "hint" }));
}

function selectArrow(arrow, isCentred) {
  state.arrow = arrow;
  state.key = columns.work[arrow];
  state.work = workOfKey.get(state.key) ?? -1;
  if (isCentred) reveal((top0[arrow] + top1[arrow]) / 2, laneX[columns.from[arrow]], laneX[columns.to[arrow]]);
  showArrow(arrow);
  redraw();
}

function selectWork(work, isCentred) {
  state.work = work;
  state.arrow = -1;
  state.key = columns.key[work];
  if (isCentred) {
    const length = Math.max(bar1[work] - bar0[work], 1e-9);
    if (length * view.zoom < 60 || length * view.zoom > bodyHeight()) view.zoom = (bodyHeight() * 0.5) / length;
    reveal((bar0[work] + bar1[work]) / 2, laneX[columns.lane[work]], NaN);
  }
  showWork(work);
  redraw();
}

function clearSelection() {
  Object.assign(state, { arrow: -1, work: -1, key: 0 });
  showNothing();
  redraw();
}

// Brings a place into view, if it is not.
function reveal(place, ...xs) {
  clampView();
  const y = yOf(place);
  if (y < HEAD + 30 || y > view.height - 30) view.top = place - bodyHeight() / view.zoom / 2;
  const known = xs.filter((x) => !Number.isNaN(x));
  if (known.length) {
    const [low, high] = [Math.min(...known), Math.max(...known)];
    if (low - view.x < AXIS + 20 || high - view.x > view.width - 20) view.x = (low + high) / 2 - view.width / 2;
  }
  layout();
  clampView();
}

// The next arrow that is shown.
function turn(step) {
  let arrow = state.arrow;
  if (arrow < 0) {
    const [first] = seenArrows();
    arrow = Math.max(-1, first - 1);
    step = 1;
  }
  do arrow += step;
  while (arrow >= 0 && arrow < count && !isShown(arrow));
  if (arrow >= 0 && arrow < count) selectArrow(arrow, true);
}

// What is under the pointer.
function hit(x, y) {
  if (y < HEAD || x < AXIS) return null;
  const px = x + view.x;
  let [best, distance] = [-1, 7];
  const [first, end] = seenArrows();
  for (let arrow = first; arrow < end; arrow++) {
    if (!isShown(arrow)) continue;
    const [y0, y1] = [yOf(top0[arrow]), yOf(top1[arrow])];
    if (Math.max(y0, y1) < y - 8 || Math.min(y0, y1) > y + 8) continue;
    const points = line(arrow);
    if (!points) continue;
    const [ax, ay, bx, by] = points;
    const length = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
    const part = Math.min(1, Math.max(0, ((px - ax) * (bx - ax) + (y - ay) * (by - ay)) / length));
    const away = Math.hypot(px - ax - part * (bx - ax), y - ay - part * (by - ay));
    if (away < distance) [best, distance] = [arrow, away];
  }
  if (best >= 0) return { arrow: best };
  const place = placeAt(y);
  const margin = 6 / view.zoom;
  for (let work = atLeast(barReach, place - margin); work < workCount && bar0[work] <= place + margin; work++) {
    if (Number.isNaN(laneX[columns.lane[work]]) || bar1[work] + margin < place) continue;
    if (Math.abs(barX(work) - px) < 6) return { work };
  }
  return null;
}

function zoomAt(y, factor) {
  const place = placeAt(y);
  view.zoom *= factor;
  clampView();
  view.top += place - placeAt(y);
  clampView();
  redraw();
}

diagram.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.x += (event.deltaX || event.deltaY) * unit;
      layout();
      redraw();
    } else zoomAt(event.offsetY, Math.exp(-event.deltaY * unit * 0.0016));
  },
  { passive: false },
);

let drag = null;
diagram.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  drag = { x: event.offsetX, y: event.offsetY, top: view.top, left: view.x, far: false };
  diagram.setPointerCapture(event.pointerId);
});
diagram.addEventListener("pointermove", (event) => {
  if (!drag) {
    diagram.classList.toggle("over", hit(event.offsetX, event.offsetY) !== null);
    return;
  }
  const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
  if (!drag.far && Math.hypot(dx, dy) < 4) return;
  drag.far = true;
  diagram.classList.add("moved");
  view.top = drag.top - dy / view.zoom;
  view.x = drag.left - dx;
  layout();
  clampView();
  redraw();
});
diagram.addEventListener("pointerup", (event) => {
  const was = drag;
  drag = null;
  diagram.classList.remove("moved");
  if (!was || was.far) return;
  const found = hit(event.offsetX, event.offsetY);
  if (!found) clearSelection();
  else if (found.arrow !== undefined) selectArrow(found.arrow, false);
  else selectWork(found.work, false);
});
diagram.addEventListener("pointercancel", () => (drag = null));

overview.addEventListener("pointerdown", (event) => {
  overview.setPointerCapture(event.pointerId);
  overview.onpointermove = (moved) => {
    const place = scale.start + (moved.offsetY / view.mapHeight) * (scale.end - scale.start);
    view.top = place - bodyHeight() / view.zoom / 2;
    clampView();
    redraw();
  };
  overview.onpointermove(event);
});
overview.addEventListener("pointerup", () => (overview.onpointermove = null));

function showAll() {
  view.zoom = 0;
  view.top = scale.start;
  clampView();
  redraw();
}

// At first a few dozen packets: enough to read.
function showFirst() {
  const some = Math.min(count, 26);
  if (!some || some === count) return showAll();
  let end = 0;
  for (let arrow = 0; arrow < some; arrow++) end = Math.max(end, top1[arrow]);
  view.zoom = bodyHeight() / Math.max(end - scale.start, 1e-9);
  view.top = scale.start;
  clampView();
  redraw();
}

function shortenGaps(isShort) {
  const middle = timeOf(view.top + bodyHeight() / view.zoom / 2);
  place(isShort);
  byId("gaps").setAttribute("aria-pressed", String(isShort));
  strip = null;
  clampView();
  view.top = placeOf(middle) - bodyHeight() / view.zoom / 2;
  clampView();
  redraw();
}

const KEYS = {
  ArrowDown: () => turn(1),
  ArrowUp: () => turn(-1),
  j: () => turn(1),
  k: () => turn(-1),
  "+": () => zoomAt(HEAD + bodyHeight() / 2, 1.4),
  "=": () => zoomAt(HEAD + bodyHeight() / 2, 1.4),
  "-": () => zoomAt(HEAD + bodyHeight() / 2, 1 / 1.4),
  PageDown: () => scroll(0.9),
  PageUp: () => scroll(-0.9),
  Home: () => ((view.top = scale.start), scroll(0)),
  End: () => ((view.top = scale.end), scroll(0)),
  ArrowLeft: () => ((view.x -= 80), layout(), redraw()),
  ArrowRight: () => ((view.x += 80), layout(), redraw()),
  Escape: clearSelection,
  0: showAll,
};
const ANYWHERE = {
  "/": () => byId("query").focus(),
  g: () => shortenGaps(!scale.isShort),
  t: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
};
function scroll(part) {
  view.top += (bodyHeight() / view.zoom) * part;
  clampView();
  redraw();
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") diagram.focus();
    return;
  }
  const isButton = event.target.matches("button");
  const act = ANYWHERE[event.key] || (isButton ? null : KEYS[event.key]);
  if (!act) return;
  event.preventDefault();
  act();
});

// What a search finds, in the order of time.
let search = { text: "", found: [], at: -1 };
function find(text) {
  const words = text.trim().toLowerCase();
  if (!words) return [];
  const wanted = words.match(/^psn\s*[:=]?\s*(0x[0-9a-f]+|\d+)$/);
  const found = [];
  if (wanted) {
    const psn = Number(wanted[1]);
    for (let arrow = 0; arrow < count; arrow++) if (psnOf(arrow) === psn && isShown(arrow)) found.push({ arrow });
    return found;
  }
  if (!/^(0x[0-9a-f]+|\d+)$/.test(words)) return found;
  const value = BigInt(words);
  const isHex = words.startsWith("0x");
  for (let work = 0; work < workCount; work++) {
    if (Number.isNaN(laneX[columns.lane[work]])) continue;
    if (columns.id[work] === value || (!isHex && BigInt(columns.number[work]) === value)) found.push({ work });
  }
  return found;
}
function searchNext(step) {
  const text = byId("query").value;
  if (text !== search.text) search = { text, found: find(text), at: -1 };
  const { found } = search;
  if (found.length) {
    search.at = (search.at + step + found.length) % found.length;
    const hitOne = found[search.at];
    if (hitOne.arrow !== undefined) selectArrow(hitOne.arrow, true);
    else selectWork(hitOne.work, true);
  }
  byId("found").textContent = !text ? "" : found.length ? `${search.at + 1} of ${number(found.length)}` : "none";
}
byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  searchNext(1);
});
byId("query").addEventListener("input", () => {
  if (!byId("query").value) clearSelection();
  byId("found").textContent = "";
});

function choosePair(lane) {
  state.pair = lane;
  search = { text: "", found: [], at: -1 };
  strip = null;
  clearSelection();
  layout();
  redraw();
}
byId("pair").append(element("option", "all", { value: "-1" }));
lanes.forEach((lane, place) => {
  if (busy[place] && lane.isKnown) byId("pair").append(element("option", `${lane.qpn} · ${lane.process}`, { value: place }));
});
byId("pair").addEventListener("change", () => choosePair(Number(byId("pair").value)));
byId("gaps").addEventListener("click", () => shortenGaps(!scale.isShort));
byId("all").addEventListener("click", showAll);

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let isChosen = false;
function setTheme(theme) {
  isChosen = true;
  applyTheme(theme);
}
function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readColours();
  redraw();
}
prefersDark.addEventListener("change", () => {
  if (!isChosen) applyTheme(prefersDark.matches ? "dark" : "light");
});
byId("theme").addEventListener("click", ANYWHERE.t);

function fit() {
  const ratio = devicePixelRatio || 1;
  for (const [canvas, width, height] of [
    [diagram, "width", "height"],
    [overview, "mapWidth", "mapHeight"],
  ]) {
    const box = canvas.getBoundingClientRect();
    [view[width], view[height]] = [box.width, box.height];
    [canvas.width, canvas.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  }
  strip = null;
  layout();
  clampView();
  redraw();
}

function describeCounts() {
  byId("title").textContent = told.title;
  const works = `${number(workCount)} work requests`;
  const begin = new Date(Number(BigInt(told.wall) / 1000000n)).toISOString().replace("T", " ").replace(/\..*/, " UTC");
  byId("counts").textContent = `${number(count)} packets of ${works}, ${span(moments.length ? moments[moments.length - 1] - origin : 0)} from ${begin}`;
  const notes = [];
  if (told.selection) notes.push(`Selected: ${told.selection}.`);
  if (told.leftOut) notes.push(`${number(told.leftOut)} packets are not in this page: export another time or queue pair to see them.`);
  if (told.local) notes.push(`${number(told.local)} work requests stayed in their process and have no packets.`);
  byId("note").textContent = notes.join(" ");
  byId("note").hidden = !told.selection && !told.leftOut && !told.local;
  byId("empty").hidden = count + workCount > 0;
  byId("why").textContent = told.leftOut ? "Nothing in the record is in the selection." : "The record has no packets and no work.";
}

applyTheme(prefersDark.matches ? "dark" : "light");
place(true);
describeCounts();
showNothing();
fit();
showFirst();
new ResizeObserver(fit).observe(byId("stage"));

// For tests and for the console.
globalThis.page = {
  count,
  workCount,
  decode,
  psnOf,
  state,
  view,
  selectArrow,
  frame: () => (draw(), drawMap()),
  middle(arrow) {
    const [x0, y0, x1, y1] = line(arrow);
    const box = diagram.getBoundingClientRect();
    return [box.left + (x0 + x1) / 2 - view.x, box.top + (y0 + y1) / 2];
  },
};
document.body.dataset.ready = "yes";
