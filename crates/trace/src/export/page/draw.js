// The diagram and the overview beside it, drawn anew whenever something moves.

const diagram = document.getElementById("diagram");
const overview = document.getElementById("overview");
const paper = diagram.getContext("2d");
const map = overview.getContext("2d");
const view = { top: 0, zoom: 1, x: 0, width: 0, height: 0, mapWidth: 0, mapHeight: 0, full: 0, drawn: 0, bars: 0 };
const state = { pair: -1, arrow: -1, work: -1, key: 0 };
const HEAD = 46;
const AXIS = 86;
const OUTER = 118;
const SENDS = 4;
const RECEIVES = 3;
const STEP = 11;
// So few arrows are drawn with heads and names; and so little slant is none, if there are more.
const FEW = 700;
const FLAT = 1.5;
const font = (size, weight = 400) => `${weight} ${size}px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;

let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["card", "text", "quiet", "line", "soft", "request", "answer", "repeat", "lost", "queued", "device", "focus"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  colours.kinds = [colours.request, colours.answer, colours.repeat, colours.lost];
}

// Which lanes are drawn, and where: peers side by side.
let laneX = [];
let laneSide = [];
let shown = [];
const partners = (() => {
  const tally = lanes.map(() => new Map());
  for (let arrow = 0; arrow < count; arrow++) {
    const [from, to] = [columns.from[arrow], columns.to[arrow]];
    if (from === to) continue;
    tally[from].set(to, (tally[from].get(to) || 0) + 1);
    tally[to].set(from, (tally[to].get(from) || 0) + 1);
  }
  return tally.map((list) => [...list.entries()].sort((a, b) => b[1] - a[1]).map(([lane]) => lane));
})();
const busy = new Uint8Array(lanes.length);
for (let arrow = 0; arrow < count; arrow++) busy[columns.from[arrow]] = busy[columns.to[arrow]] = 1;
for (let work = 0; work < workCount; work++) busy[columns.lane[work]] = 1;

// Lanes in the order in which they send.
const order = [...new Set([...columns.from, ...lanes.keys()])];
// Columns of bars that sends need beside each lane; receives come behind them.
const sendColumns = lanes.map(() => 0);
for (let work = 0; work < workCount; work++) {
  if (columns.mark[work] & MARK.receive) continue;
  const lane = columns.lane[work];
  sendColumns[lane] = Math.min(SENDS, Math.max(sendColumns[lane], columns.column[work] + 1));
}

function layout() {
  const wanted = (lane) => busy[lane] && (state.pair < 0 || lane === state.pair || partners[state.pair].includes(lane));
  const groups = [];
  const done = new Set();
  order.forEach((lane) => {
    if (done.has(lane) || !wanted(lane)) return;
    done.add(lane);
    const mate = partners[lane].find((other) => !done.has(other) && wanted(other));
    if (mate !== undefined) done.add(mate);
    groups.push(mate === undefined ? [lane] : [lane, mate]);
  });
  const least = 230;
  const need = groups.reduce((sum, group) => sum + 2 * OUTER + (group.length - 1) * least, 0);
  const couples = groups.filter((group) => group.length === 2).length;
  const room = Math.max(0, view.width - AXIS - need);
  const inner = least + (couples ? Math.min(room / couples, 560) : 0);
  const used = groups.reduce((sum, group) => sum + 2 * OUTER + (group.length - 1) * inner, 0);
  let x = AXIS + Math.max(0, (view.width - AXIS - used) / 2);
  laneX = lanes.map(() => NaN);
  laneSide = lanes.map(() => -1);
  shown = [];
  for (const group of groups) {
    x += OUTER;
    group.forEach((lane, place) => {
      laneX[lane] = x + place * inner;
      laneSide[lane] = group.length === 2 && place === 1 ? 1 : -1;
      shown.push(lane);
    });
    x += (group.length - 1) * inner + OUTER;
  }
  view.full = x;
  view.x = Math.min(Math.max(0, view.x), Math.max(0, view.full - view.width));
}

const isShown = (arrow) => state.pair < 0 || columns.from[arrow] === state.pair || columns.to[arrow] === state.pair;
const yOf = (place) => HEAD + 14 + (place - view.top) * view.zoom;
const placeAt = (y) => view.top + (y - HEAD - 14) / view.zoom;
const bodyHeight = () => Math.max(1, view.height - HEAD - 28);

function clampView() {
  const all = scale.end - scale.start;
  const least = bodyHeight() / Math.max(all, 1e-9);
  view.zoom = Math.min(Math.max(view.zoom, least), Math.max(least, 40));
  const seen = bodyHeight() / view.zoom;
  view.top = Math.min(Math.max(view.top, scale.start), Math.max(scale.start, scale.end - seen));
}

let isDue = false;
function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
    drawMap();
  });
}

// The first and the last arrow that may be seen.
function seenArrows() {
  const [low, high] = [placeAt(HEAD - 20), placeAt(view.height + 20)];
  return [atLeast(reach, low), Math.min(count, atLeast(top0, high) + 64)];
}

function draw() {
  const ratio = devicePixelRatio || 1;
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.clearRect(0, 0, view.width, view.height);
  if (!shown.length) return;
  drawAxis();
  paper.save();
  paper.beginPath();
  paper.rect(AXIS, HEAD, view.width - AXIS, view.height - HEAD);
  paper.clip();
  paper.translate(-view.x, 0);
  paper.lineWidth = 1;
  paper.strokeStyle = colours.line;
  paper.beginPath();
  for (const lane of shown) {
    const x = Math.round(laneX[lane]) + 0.5;
    paper.moveTo(x, HEAD);
    paper.lineTo(x, view.height);
  }
  paper.strokeStyle = colours.quiet;
  paper.globalAlpha = 0.55;
  paper.stroke();
  paper.globalAlpha = 1;
  drawWorks();
  drawArrows();
  paper.restore();
  paper.font = font(11);
  paper.textAlign = "center";
  paper.textBaseline = "middle";
  for (const [text, y] of notes) {
    const width = paper.measureText(text).width + 16;
    const x = AXIS + (view.width - AXIS) / 2;
    paper.fillStyle = colours.soft;
    paper.fillRect(x - width / 2, y - 7, width, 14);
    paper.fillStyle = colours.quiet;
    paper.fillText(text, x, y);
  }
  drawHeads();
}

let notes = [];
function drawAxis() {
  notes = [];
  paper.font = font(11);
  paper.textBaseline = "middle";
  const bottom = view.height;
  if (scale.isShort) {
    for (let y = HEAD + 14; y < bottom; y += 72) tick(y, span(timeOf(placeAt(y)) - origin, 2));
    const first = atLeast(scale.gaps.map((gap) => gap[1]), placeAt(HEAD));
    for (let gap = first; gap < Math.min(scale.gaps.length, first + 60); gap++) {
      const [from, to, length] = scale.gaps[gap];
      const [y0, y1] = [yOf(from), yOf(to)];
      if (y0 > bottom) break;
      if (y1 - y0 < 16) continue;
      paper.fillStyle = colours.soft;
      paper.globalAlpha = 0.7;
      paper.fillRect(AXIS, y0 + 2, view.width - AXIS, y1 - y0 - 4);
      paper.globalAlpha = 1;
      paper.fillStyle = colours.quiet;
      notes.push([`${span(length, 1)} in which nothing happens`, (y0 + y1) / 2]);
    }
  } else {
    const seen = bodyHeight() / view.zoom;
    const rough = (seen / bodyHeight()) * 80;
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) || power * 10;
    const start = Math.ceil((timeOf(placeAt(HEAD)) - origin) / step) * step;
    for (let time = start; yOf(placeOf(origin + time)) < bottom; time += step) tick(yOf(placeOf(origin + time)), span(time));
  }
}

function tick(y, text) {
  paper.strokeStyle = colours.line;
  paper.lineWidth = 1;
  paper.beginPath();
  paper.moveTo(AXIS, Math.round(y) + 0.5);
  paper.lineTo(view.width, Math.round(y) + 0.5);
  paper.globalAlpha = 0.6;
  paper.stroke();
  paper.globalAlpha = 1;
  paper.fillStyle = colours.quiet;
  paper.textAlign = "right";
  paper.fillText(text, AXIS - 10, y);
}

function drawHeads() {
  paper.fillStyle = colours.card;
  paper.fillRect(0, 0, view.width, HEAD);
  paper.fillStyle = colours.line;
  paper.fillRect(0, HEAD - 1, view.width, 1);
  paper.save();
  paper.beginPath();
  paper.rect(AXIS, 0, view.width - AXIS, HEAD);
  paper.clip();
  paper.textAlign = "center";
  paper.textBaseline = "middle";
  for (const lane of shown) {
    const { process, qpn, address, isKnown } = lanes[lane];
    const x = laneX[lane] - view.x;
    if (x < AXIS - 150 || x > view.width + 150) continue;
    paper.font = font(12.5, 620);
    paper.fillStyle = isKnown ? colours.text : colours.quiet;
    paper.fillText(isKnown ? process : "not recorded", x, 15);
    paper.font = font(11.5);
    paper.fillStyle = colours.quiet;
    paper.fillText(address ? `QP ${qpn} · ${address}` : `QP ${qpn}`, x, 32);
  }
  paper.restore();
  paper.fillStyle = colours.quiet;
  paper.textAlign = "right";
  paper.font = font(11);
  paper.fillText("time", AXIS - 10, 32);
}

// Where the bar of work is, from left to right.
function barX(work) {
  const lane = columns.lane[work];
  const isReceive = columns.mark[work] & MARK.receive;
  const column = isReceive ? sendColumns[lane] + (columns.column[work] % RECEIVES) : columns.column[work] % SENDS;
  return laneX[lane] + laneSide[lane] * (16 + column * STEP);
}

function drawWorks() {
  view.bars = 0;
  const low = placeAt(HEAD - 20);
  const high = placeAt(view.height + 20);
  // The last row that was drawn of each column of bars: what would lie in the same one is left out.
  const each = SENDS + RECEIVES;
  const last = new Int32Array(lanes.length * each).fill(-1e9);
  const names = new Map();
  paper.textBaseline = "middle";
  for (let work = atLeast(barReach, low); work < workCount && bar0[work] <= high; work++) {
    const lane = columns.lane[work];
    if (bar1[work] < low || Number.isNaN(laneX[lane])) continue;
    const y1 = yOf(bar1[work]);
    const slot = lane * each + (columns.mark[work] & MARK.receive ? SENDS + (columns.column[work] % RECEIVES) : columns.column[work] % SENDS);
    if (last[slot] >= Math.floor(y1) && state.work !== work) continue;
    last[slot] = Math.floor(y1);
    view.bars++;
    const x = barX(work);
    const y0 = yOf(bar0[work]);
    const isDim = state.key && state.key !== columns.key[work];
    const status = columns.status[work];
    const [begun, done] = [yOf(barBegun[work]), yOf(barDone[work])];
    paper.globalAlpha = isDim ? 0.45 : 1;
    paper.fillStyle = colours.queued;
    paper.fillRect(x - 3.5, y0, 7, Math.max(1, Math.min(begun, done) - y0));
    paper.fillStyle = status !== 0 && status !== NONE ? colours.lost : colours.device;
    paper.fillRect(x - 3.5, begun, 7, Math.max(0, done - begun));
    if (y1 - y0 > 7 && status !== NONE) {
      const colour = status === 0 ? colours.text : colours.lost;
      if (!(columns.mark[work] & (MARK.quiet | MARK.forgotten))) {
        paper.fillStyle = colour;
        paper.beginPath();
        paper.moveTo(x, done - 5);
        paper.lineTo(x + 5, done);
        paper.lineTo(x, done + 5);
        paper.lineTo(x - 5, done);
        paper.fill();
      }
      if (!Number.isNaN(columns.polled[work])) {
        paper.strokeStyle = colour;
        paper.lineWidth = 1.3;
        paper.beginPath();
        paper.moveTo(x, done + 5);
        paper.lineTo(x, Math.max(done + 5, y1 - 3.5));
        paper.moveTo(x + 3.5, y1);
        paper.arc(x, y1, 3.5, 0, 7);
        paper.stroke();
      }
    }
    if (state.work === work) {
      paper.strokeStyle = colours.focus;
      paper.lineWidth = 2;
      paper.strokeRect(x - 6.5, y0 - 4, 13, y1 - y0 + 10);
    }
    const nameKey = lane;
    const nameY = Math.max(y0 + 5, HEAD + 10);
    if (y1 - y0 > 16 && !(names.get(nameKey) > nameY - 13)) {
      names.set(nameKey, nameY);
      const side = laneSide[lane];
      const edge = laneX[lane] + side * (16 + (SENDS + RECEIVES) * STEP - 4);
      paper.font = font(10.5);
      paper.fillStyle = colours.quiet;
      paper.textAlign = side < 0 ? "right" : "left";
      const isReceive = columns.mark[work] & MARK.receive;
      paper.fillText(`${isReceive ? "R" : "S"}${columns.number[work]}`, edge, nameY);
    }
  }
  paper.globalAlpha = 1;
}

// The line of an arrow on the paper; one that is lost ends before it comes.
function line(arrow) {
  const [from, to] = [columns.from[arrow], columns.to[arrow]];
  let [x0, x1] = [laneX[from], laneX[to]];
  const [y0, y1] = [yOf(top0[arrow]), yOf(top1[arrow])];
  if (Number.isNaN(x0) && Number.isNaN(x1)) return null;
  if (Number.isNaN(x0)) x0 = x1 - laneSide[to] * -60;
  if (Number.isNaN(x1)) x1 = x0 + laneSide[from] * -60;
  if (from === to) x1 = x0 + laneSide[from] * -70;
  const isCut = isLost(arrow) && Number.isNaN(columns.came[arrow]);
  const part = isCut ? 0.55 : 1;
  return [x0, y0, x0 + (x1 - x0) * part, y0 + (y1 - y0) * part, isCut];
}

function drawArrows() {
  const [first, end] = seenArrows();
  const groups = [0, 1, 2, 3].map(() => [[], []]);
  const last0 = new Float64Array(ways.size * 4).fill(-1e9);
  const last1 = new Float64Array(ways.size * 4).fill(-1e9);
  // What is flat and in the same row as another of its kind is left out, whichever way it goes.
  const rows = new Int32Array(couples.size * 4).fill(-1e9);
  let drawn = 0;
  for (let arrow = first; arrow < end; arrow++) {
    if (!isShown(arrow)) continue;
    const kind = kindOf[arrow];
    const slot = wayOf[arrow] * 4 + kind;
    const [y0, y1] = [yOf(top0[arrow]), yOf(top1[arrow])];
    if (Math.abs(y0 - last0[slot]) < 0.8 && Math.abs(y1 - last1[slot]) < 0.8) continue;
    if (Math.max(y0, y1) < HEAD - 20 || Math.min(y0, y1) > view.height + 20) continue;
    last0[slot] = y0;
    last1[slot] = y1;
    if (Math.abs(y1 - y0) < FLAT && end - first > FEW) {
      const row = coupleOf[arrow] * 4 + (kind === KIND.answer ? KIND.request : kind);
      if (rows[row] === Math.round(y0)) continue;
      rows[row] = Math.round(y0);
    }
    const isDim = state.key && columns.work[arrow] !== state.key;
    groups[kind][isDim ? 1 : 0].push(arrow);
    drawn++;
  }
  view.drawn = drawn;
  const isFine = drawn < FEW;
  for (const kind of [1, 0, 2, 3]) {
    for (const dim of [1, 0]) {
      const list = groups[kind][dim];
      if (!list.length) continue;
      paper.globalAlpha = dim ? (isFine ? 0.38 : 0.2) : isFine ? 1 : 0.5;
      stroke(list, colours.kinds[kind], isFine);
    }
  }
  paper.globalAlpha = 1;
  if (state.arrow >= 0 && isShown(state.arrow)) {
    paper.globalAlpha = 0.28;
    stroke([state.arrow], colours.focus, true, 9);
    paper.globalAlpha = 1;
    stroke([state.arrow], colours.kinds[kindOf[state.arrow]], true, 2.4);
  }
  if (isFine) drawLabels(groups.map((group) => group[0]).concat(state.key ? [] : groups.map((group) => group[1])));
}

function stroke(list, colour, isFine, width = 1.4) {
  paper.strokeStyle = paper.fillStyle = colour;
  paper.lineWidth = isFine ? width : 1;
  const [path, heads] = [new Path2D(), new Path2D()];
  for (const arrow of list) {
    const points = line(arrow);
    if (!points) continue;
    const [x0, y0, x1, y1, isCut] = points;
    if (!isFine && Math.abs(y1 - y0) < FLAT) {
      heads.rect(Math.min(x0, x1), Math.round(y0), Math.abs(x1 - x0), 1);
      continue;
    }
    path.moveTo(x0, y0);
    path.lineTo(x1, y1);
    if (!isFine) continue;
    if (isCut) {
      path.moveTo(x1 - 5, y1 - 5);
      path.lineTo(x1 + 5, y1 + 5);
      path.moveTo(x1 + 5, y1 - 5);
      path.lineTo(x1 - 5, y1 + 5);
    } else {
      const turn = Math.atan2(y1 - y0, x1 - x0);
      heads.moveTo(x1, y1);
      heads.lineTo(x1 - 9 * Math.cos(turn - 0.36), y1 - 9 * Math.sin(turn - 0.36));
      heads.lineTo(x1 - 9 * Math.cos(turn + 0.36), y1 - 9 * Math.sin(turn + 0.36));
      heads.closePath();
    }
  }
  paper.stroke(path);
  paper.fill(heads);
}

// A name at each arrow, where there is room: it lies along the arrow.
function drawLabels(lists) {
  const taken = [];
  paper.font = font(11);
  paper.textAlign = "center";
  paper.textBaseline = "middle";
  const all = lists.flat().sort((a, b) => (b === state.arrow) - (a === state.arrow) || top0[a] - top0[b]);
  if (all.length > 260) return;
  // No name hides the cross of what is lost.
  for (const arrow of all) {
    const points = line(arrow);
    if (points && points[4]) taken.push([points[2], points[3], 10, 0]);
  }
  for (const arrow of all) {
    const points = line(arrow);
    if (!points) continue;
    const [x0, y0, x1, y1, isCut] = points;
    const isRight = x1 > x0;
    const text = label(arrow);
    const width = paper.measureText(text).width + 8;
    const length = Math.hypot(x1 - x0, y1 - y0);
    if (width > length - 30) continue;
    const isFree = (part) => {
      const [x, y] = [x0 + (x1 - x0) * part, y0 + (y1 - y0) * part];
      if (y < HEAD + 8 || y > view.height - 6) return false;
      // How far its line is from that of another name, where they are above each other.
      return !taken.some(([ox, oy, half, slope]) => Math.abs(ox - x) < half + width / 2 && Math.abs(oy + slope * (x - ox) - y) < 15);
    };
    // It stays between the ends of its line.
    const edge = (width / 2 + 14) / length;
    const parts = (isCut ? [0.4, 0.5] : [0.3, 0.5, 0.7]).map((part) => Math.min(Math.max(part, edge), 1 - edge));
    const part = parts.find(isFree);
    if (part === undefined) continue;
    const [x, y] = [x0 + (x1 - x0) * part, y0 + (y1 - y0) * part];
    taken.push([x, y, width / 2, (y1 - y0) / (x1 - x0 || 1)]);
    let turn = Math.atan2(y1 - y0, x1 - x0);
    if (!isRight) turn += Math.PI;
    paper.save();
    paper.translate(x, y);
    paper.rotate(turn);
    paper.globalAlpha = 0.88;
    paper.fillStyle = colours.card;
    paper.fillRect(-width / 2, -7, width, 14);
    paper.globalAlpha = 1;
    paper.fillStyle = colours.kinds[kindOf[arrow]];
    paper.fillText(text, 0, 0.5);
    paper.restore();
  }
}

function label(arrow) {
  const name = operationName(opcodeOf(arrow)).replace("RDMA ", "").replace("Acknowledge", "ACK");
  const bytes = headerBytes(arrow);
  const size = columns.payload[arrow] ? ` · ${number(columns.payload[arrow])} B` : "";
  return `${isNak(arrow) ? told.syndromes[bytes[12]] : name} ${hex(psnOf(arrow), 6)}${size}`;
}

// How much happens when: the whole page in one strip.
let strip = null;
function makeStrip() {
  const rows = Math.max(1, Math.floor(view.mapHeight));
  strip = [0, 1, 2, 3].map(() => new Float64Array(rows));
  const size = rows / (scale.end - scale.start || 1);
  for (let arrow = 0; arrow < count; arrow++) {
    if (!isShown(arrow)) continue;
    const row = Math.min(rows - 1, Math.max(0, Math.floor((top0[arrow] - scale.start) * size)));
    strip[kindOf[arrow]][row]++;
  }
}

function drawMap() {
  const ratio = devicePixelRatio || 1;
  map.setTransform(ratio, 0, 0, ratio, 0, 0);
  map.clearRect(0, 0, view.mapWidth, view.mapHeight);
  if (!strip) makeStrip();
  const rows = strip[0].length;
  const most = Math.log2(2 + Math.max(...strip[0]) + Math.max(...strip[1]));
  for (let row = 0; row < rows; row++) {
    const all = strip[0][row] + strip[1][row] + strip[2][row] + strip[3][row];
    if (!all) continue;
    const width = Math.max(2, (Math.log2(1 + all) / most) * (view.mapWidth - 20));
    map.globalAlpha = 0.55;
    map.fillStyle = colours.request;
    map.fillRect(6, row, width, 1);
    map.globalAlpha = 1;
    if (strip[2][row]) {
      map.fillStyle = colours.repeat;
      map.fillRect(view.mapWidth - 13, row, 4, 2);
    }
    if (strip[3][row]) {
      map.fillStyle = colours.lost;
      map.fillRect(view.mapWidth - 8, row, 4, 2);
    }
  }
  const size = rows / (scale.end - scale.start || 1);
  const y = (view.top - scale.start) * size;
  const height = Math.max(6, (bodyHeight() / view.zoom) * size);
  map.fillStyle = colours.focus;
  map.globalAlpha = 0.12;
  map.fillRect(1, y, view.mapWidth - 2, height);
  map.globalAlpha = 1;
  map.strokeStyle = colours.focus;
  map.lineWidth = 1.5;
  map.strokeRect(1.5, Math.min(y, rows - 6) + 0.5, view.mapWidth - 3, height - 1);
}
