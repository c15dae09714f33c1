// What the page holds: columns of numbers, and what follows from them.

const told = JSON.parse(document.getElementById("told").textContent);

const columns = (() => {
  const letters = atob(document.getElementById("data").textContent);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place++) bytes[place] = letters.charCodeAt(place);
  const list = {};
  for (const [name, [kind, at, count]] of Object.entries(told.columns)) {
    list[name] = new globalThis[kind](bytes.buffer, at, count);
  }
  return list;
})();

const FLAG = { out: 1, local: 2, work: 4, repeat: 8, taken: 16, doubled: 32, delayed: 64, damaged: 128, refused: 256, congestion: 512 };
const MARK = { receive: 1, local: 2, quiet: 4, forgotten: 8, overrun: 16 };
const NONE = 255;
const lanes = told.lanes.map(([process, qpn, address]) => ({ process, qpn, address, isKnown: process !== "" }));
const count = columns.sent.length;
const workCount = columns.posted.length;

// Each pair of lanes that packets go between has a number.
const ways = new Map();
const wayOf = new Uint32Array(count);
// The same, whichever way they go.
const couples = new Map();
const coupleOf = new Uint32Array(count);
const KIND = { request: 0, answer: 1, repeat: 2, lost: 3 };
const kindOf = new Uint8Array(count);
const psnOf = (arrow) => {
  const at = columns.head[arrow] + 9;
  return (columns.headers[at] << 16) | (columns.headers[at + 1] << 8) | columns.headers[at + 2];
};
const opcodeOf = (arrow) => columns.headers[columns.head[arrow]];
const isLost = (arrow) => {
  const flags = columns.flags[arrow];
  if (flags & (FLAG.taken | FLAG.refused)) return true;
  return Number.isNaN(columns.came[arrow]) && !(flags & FLAG.local) && lanes[columns.to[arrow]].isKnown;
};
// An acknowledgement that says no: not now, or not at all.
const isNak = (arrow) => opcodeOf(arrow) === 0x11 && columns.headers[columns.head[arrow] + 12] >> 5 !== 0;
for (let arrow = 0; arrow < count; arrow++) {
  const way = columns.from[arrow] * 65536 + columns.to[arrow];
  if (!ways.has(way)) ways.set(way, ways.size);
  wayOf[arrow] = ways.get(way);
  const [low, high] = [Math.min(columns.from[arrow], columns.to[arrow]), Math.max(columns.from[arrow], columns.to[arrow])];
  const couple = low * 65536 + high;
  if (!couples.has(couple)) couples.set(couple, couples.size);
  coupleOf[arrow] = couples.get(couple);
  const opcode = told.opcodes[opcodeOf(arrow)];
  if (isLost(arrow) || isNak(arrow)) kindOf[arrow] = KIND.lost;
  else if (columns.flags[arrow] & FLAG.repeat) kindOf[arrow] = KIND.repeat;
  else kindOf[arrow] = opcode && opcode[2] ? KIND.answer : KIND.request;
}

// How long a packet is usually under way: where one end is not known, it is drawn like that.
const usual = (() => {
  const flights = [];
  for (let arrow = 0; arrow < count && flights.length < 1001; arrow++) {
    const flight = columns.came[arrow] - columns.sent[arrow];
    if (flight > 0) flights.push(flight);
  }
  flights.sort((a, b) => a - b);
  return flights.length ? flights[flights.length >> 1] : 2000;
})();
const sentAt = (arrow) => (Number.isNaN(columns.sent[arrow]) ? columns.came[arrow] - usual : columns.sent[arrow]);
const cameAt = (arrow) => (Number.isNaN(columns.came[arrow]) ? columns.sent[arrow] + usual : columns.came[arrow]);

const workEnd = (work) => {
  let end = columns.posted[work];
  for (const time of [columns.begun[work], columns.completed[work], columns.polled[work]]) if (time > end) end = time;
  return end;
};
const workOfKey = new Map();
for (let work = 0; work < workCount; work++) workOfKey.set(columns.key[work], work);

// From times to places on the paper: as they are, or with gaps shortened in which nothing happens.
const scale = { times: new Float64Array(0), places: new Float64Array(0), gaps: [], isShort: true, start: 0, end: 1 };
const moments = (() => {
  const all = new Float64Array(count * 2 + workCount * 4);
  let used = 0;
  const put = (time) => {
    if (!Number.isNaN(time)) all[used++] = time;
  };
  for (let arrow = 0; arrow < count; arrow++) {
    put(sentAt(arrow));
    put(cameAt(arrow));
  }
  for (let work = 0; work < workCount; work++) {
    put(columns.posted[work]);
    put(columns.begun[work]);
    put(columns.completed[work]);
    put(columns.polled[work]);
  }
  return all.slice(0, used).sort();
})();

function makeScale(isShort) {
  scale.isShort = isShort;
  scale.gaps = [];
  scale.step = 0;
  const total = moments.length;
  const places = new Float64Array(total);
  let knee = Infinity;
  if (isShort && total > 2) {
    const gaps = [];
    const stride = Math.ceil(total / 50000);
    for (let place = 1; place < total; place += stride) {
      const gap = moments[place] - moments[place - 1];
      if (gap > 0) gaps.push(gap);
    }
    gaps.sort((a, b) => a - b);
    // Up to the usual distance of two events as it is, and what is longer the less it counts. What happens at the
    // same time, as the clock has it, is one below the other.
    knee = Math.max(1, gaps[gaps.length >> 1] || 1);
    scale.step = knee * 0.8;
  }
  for (let place = 1; place < total; place++) {
    const gap = moments[place] - moments[place - 1];
    const short = gap <= knee ? gap : knee * (1 + 0.7 * Math.log2(gap / knee));
    places[place] = places[place - 1] + (isShort ? Math.max(short, scale.step) : gap);
    if (isShort && gap > usual * 2.5) scale.gaps.push([places[place - 1], places[place], gap]);
  }
  scale.times = moments;
  scale.places = places;
  scale.start = 0;
  scale.end = total ? places[total - 1] || 1 : 1;
}

const atLeast = (list, value) => {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
};
const between = (from, to, value) => {
  if (!from.length) return value;
  const last = from.length - 1;
  if (value <= from[0]) return to[0] + value - from[0];
  if (value >= from[last]) return to[last] + value - from[last];
  const next = atLeast(from, value);
  const width = from[next] - from[next - 1];
  return width ? to[next - 1] + ((value - from[next - 1]) / width) * (to[next] - to[next - 1]) : to[next];
};
const placeOf = (time) => between(scale.times, scale.places, time);
const timeOf = (place) => between(scale.places, scale.times, place);

// Places of all arrows and bars, and how far those before reach.
const top0 = new Float64Array(count);
const top1 = new Float64Array(count);
const reach = new Float64Array(count);
const bar0 = new Float64Array(workCount);
const bar1 = new Float64Array(workCount);
const barBegun = new Float64Array(workCount);
const barDone = new Float64Array(workCount);
const barReach = new Float64Array(workCount);
function place(isShort) {
  makeScale(isShort);
  let far = -Infinity;
  const last = [new Map(), new Map()];
  // The place of a time at a lane; what was at that time before is above.
  const next = (side, lane, time) => {
    const before = last[side].get(lane);
    const turns = before && before[0] === time ? before[1] + 1 : 0;
    last[side].set(lane, [time, turns]);
    return placeOf(time) + turns * scale.step;
  };
  for (let arrow = 0; arrow < count; arrow++) {
    top0[arrow] = next(0, columns.from[arrow], sentAt(arrow));
    top1[arrow] = next(1, columns.to[arrow], cameAt(arrow));
    far = Math.max(far, top0[arrow], top1[arrow]);
    reach[arrow] = far;
  }
  far = -Infinity;
  for (let work = 0; work < workCount; work++) {
    bar0[work] = placeOf(columns.posted[work]);
    bar1[work] = placeOf(workEnd(work));
    barBegun[work] = Number.isNaN(columns.begun[work]) ? bar1[work] : placeOf(columns.begun[work]);
    barDone[work] = Number.isNaN(columns.completed[work]) ? bar1[work] : placeOf(columns.completed[work]);
    far = Math.max(far, bar1[work]);
    barReach[work] = far;
  }
}

const fraction = (value, digits) => (digits ? value.toFixed(digits).replace(/\.?0+$/, "") : value.toFixed(0));
function span(nanos, digits = 3) {
  const size = Math.abs(nanos);
  if (size < 1000) return `${fraction(nanos, 0)} ns`;
  if (size < 1e6) return `${fraction(nanos / 1e3, digits)} µs`;
  if (size < 1e9) return `${fraction(nanos / 1e6, digits)} ms`;
  return `${fraction(nanos / 1e9, digits + 3)} s`;
}
const origin = moments.length ? moments[0] : 0;
const since = (time) => span(time - origin);
const hex = (value, digits) => `0x${value.toString(16).padStart(digits, "0")}`;
const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");
