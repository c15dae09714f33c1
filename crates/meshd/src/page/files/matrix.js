// The matrix from ToR to ToR, on a canvas: it has to hold 3 ToRs and 320.

import { by, count, css, duration, el, go, share, sharp, table } from "./tools.js";

const LABELS = 15; // Cells of so many pixels have names beside them.

export class Matrix {
  constructor(open) {
    this.open = open;
    this.canvas = by("cells");
    this.mode = "loss";
    this.window = null;
    this.rows = [];
    this.at = { row: 0, column: 0 };
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("click", (event) => {
      if (this.point(event)) this.enter();
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => {
      this.say();
      this.draw();
    });
    this.canvas.addEventListener("blur", () => this.draw());
    by("filter").addEventListener("input", () => this.show(this.window));
    for (const choice of document.querySelectorAll("input[name=by]")) {
      choice.addEventListener("change", () => this.colour(choice.value));
    }
    new ResizeObserver(() => this.draw()).observe(by("matrix"));
  }

  colour(mode) {
    this.mode = mode;
    for (const choice of document.querySelectorAll("input[name=by]")) choice.checked = choice.value === mode;
    this.draw();
    this.worst();
    if (this.rows.length) this.say();
  }

  next_colour() {
    const modes = ["loss", "p50", "p99"];
    this.colour(modes[(modes.indexOf(this.mode) + 1) % modes.length]);
  }

  show(window) {
    this.window = window;
    if (!window) return;
    const name = this.rows.length ? [this.name(this.at.row), this.name(this.at.column)] : null;
    if (window.losses === undefined) {
      window.losses = new Uint32Array(window.probes.length);
      for (let place = 0; place < window.lost.length; place += 2)
        window.losses[window.lost[place]] = window.lost[place + 1];
    }
    const wanted = by("filter").value.toLowerCase();
    this.rows = [...window.tors.keys()].filter((row) => window.tors[row].toLowerCase().includes(wanted));
    // The cursor stays on its ToRs, also if others came.
    this.shown = window.tors;
    const find = (tor) =>
      Math.max(
        0,
        this.rows.findIndex((row) => window.tors[row] === tor),
      );
    this.at = name ? { row: find(name[0]), column: find(name[1]) } : { row: 0, column: 0 };
    this.draw();
    this.worst();
  }

  name(place) {
    return this.shown[this.rows[place]];
  }

  place(row, column) {
    return this.rows[row] * this.window.tors.length + this.rows[column];
  }

  value(place) {
    const { probes, losses, p50_ns, p99_ns } = this.window;
    if (!probes[place]) return null;
    if (this.mode === "loss") return losses[place] / probes[place];
    return (this.mode === "p50" ? p50_ns : p99_ns)[place] || null;
  }

  // The ends of the scale of times, so that colours differ however fast the network is.
  scale() {
    let [low, high] = [Infinity, 0];
    for (const time of this.mode === "p50" ? this.window.p50_ns : this.window.p99_ns) {
      if (time) [low, high] = [Math.min(low, time), Math.max(high, time)];
    }
    return high ? [low, Math.max(high, low * 2)] : [1, 2];
  }

  shade(value, scale) {
    if (value === null) return css("--none");
    const dark = document.documentElement.dataset.theme === "dark";
    if (this.mode === "loss") {
      if (value === 0) return css("--calm");
      // From one in a thousand to all, by powers of ten.
      const part = Math.min(1, Math.max(0, (Math.log10(value) + 3) / 3));
      return `hsl(${45 - 45 * part} 90% ${dark ? 62 - 14 * part : 60 - 25 * part}%)`;
    }
    const part = Math.log(value / scale[0]) / Math.log(scale[1] / scale[0]);
    return dark
      ? `hsl(${210 - 10 * part} 60% ${20 + 55 * part}%)`
      : `hsl(${205 + 20 * part} 65% ${92 - 62 * part}%)`;
  }

  draw() {
    if (!this.window) return;
    const width = by("matrix").clientWidth || 400;
    const size = this.rows.length;
    const longest = Math.max(0, ...this.rows.map((row) => this.window.tors[row].length));
    let margin = Math.min(130, 10 + 7 * Math.min(18, longest));
    const beyond = Math.min(70, 4 * longest); // The last name leans over the edge.
    let cell = Math.min(36, (width - margin - beyond) / Math.max(1, size));
    const has_names = cell >= LABELS;
    if (!has_names) {
      margin = 4;
      cell = (width - margin - 2) / Math.max(1, size);
    }
    const top = has_names ? Math.min(margin, 24 + 4 * Math.min(18, longest)) : 4;
    Object.assign(this, { cell, margin, top });
    const across = margin + cell * size + (has_names ? beyond : 2);
    const pen = sharp(this.canvas, across, top + cell * size + 2);
    pen.clearRect(0, 0, across, top + cell * size + 2);
    const scale = this.mode === "loss" ? null : this.scale();
    this.scaled = scale;
    const shades = new Map();
    const gap = cell > 8 ? 1 : 0;
    for (let row = 0; row < size; row += 1) {
      for (let column = 0; column < size; column += 1) {
        const place = this.place(row, column);
        const value = this.value(place);
        let shade = shades.get(value);
        if (!shade) shades.set(value, (shade = this.shade(value, scale)));
        pen.fillStyle = shade;
        const [x, y] = [margin + column * cell, top + row * cell];
        // Small cells overlap by a little, so that no lines are between them.
        pen.fillRect(x, y, cell - gap + (gap ? 0 : 0.5), cell - gap + (gap ? 0 : 0.5));
        if (this.window.losses[place] && cell >= 7) this.cross(pen, x, y, cell - gap);
      }
    }
    if (has_names) this.names(pen, size);
    if (cell < 7) this.small_losses(pen, size, shades);
    if (size) {
      pen.strokeStyle = css("--focus");
      pen.lineWidth = document.activeElement === this.canvas ? 3 : 1.5;
      const [x, y] = [margin + this.at.column * cell, top + this.at.row * cell];
      pen.strokeRect(x - 1, y - 1, Math.max(cell, 5) + 1, Math.max(cell, 5) + 1);
    }
    this.legend(scale);
  }

  // Losses are crossed out, so that they are seen without colours.
  cross(pen, x, y, size) {
    pen.strokeStyle = css("--text");
    pen.lineWidth = size > 20 ? 1.5 : 1;
    const inset = size * 0.3;
    pen.beginPath();
    pen.moveTo(x + inset, y + inset);
    pen.lineTo(x + size - inset, y + size - inset);
    pen.moveTo(x + size - inset, y + inset);
    pen.lineTo(x + inset, y + size - inset);
    pen.stroke();
  }

  names(pen, size) {
    pen.fillStyle = css("--text");
    pen.font = "11px system-ui, sans-serif";
    const short = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);
    for (let place = 0; place < size; place += 1) {
      const name = short(this.name(place));
      const middle = (place + 0.5) * this.cell;
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      pen.fillText(name, this.margin - 6, this.top + middle);
      pen.save();
      pen.translate(this.margin + middle, this.top - 6);
      pen.rotate(-Math.PI / 4);
      pen.textAlign = "left";
      pen.fillText(name, 0, 0);
      pen.restore();
    }
  }

  // Small cells with losses are drawn larger, over the others, and marked at the edges.
  small_losses(pen, size, shades) {
    const side = Math.max(4, this.cell);
    const edge = css("--bad");
    for (let row = 0; row < size; row += 1) {
      for (let column = 0; column < size; column += 1) {
        const place = this.place(row, column);
        if (!this.window.losses[place]) continue;
        const [x, y] = [this.margin + column * this.cell, this.top + row * this.cell];
        pen.fillStyle = edge;
        pen.fillRect(0, y, 3, Math.max(1, this.cell));
        pen.fillRect(x, 0, Math.max(1, this.cell), 3);
        if (this.mode === "loss") pen.fillStyle = shades.get(this.value(place));
        pen.fillRect(x, y, side, side);
      }
    }
  }

  legend(scale) {
    const steps =
      this.mode === "loss"
        ? [
            [null, "not probed"],
            [0, "no loss"],
            [0.001, "0.1 %"],
            [0.01, "1 %"],
            [0.1, "10 %"],
            [1, "all lost"],
          ]
        : [
            [null, "no round trips"],
            ...[0, 0.5, 1].map((part) => {
              const time = scale[0] * (scale[1] / scale[0]) ** part;
              return [time, duration(Math.round(time))];
            }),
          ];
    const box = (value) => {
      const made = el("canvas", { "aria-hidden": "true" });
      const pen = sharp(made, 14, 14);
      pen.fillStyle = this.shade(value, scale);
      pen.fillRect(0, 0, 14, 14);
      if (this.mode === "loss" && value) this.cross(pen, 0, 0, 14);
      return made;
    };
    by("legend").replaceChildren(
      el("span", {}, "rows: from, columns: to"),
      ...steps.map(([value, text]) => el("span", {}, box(value), text)),
      ...(this.cell < 7 ? [el("span", {}, "marks at the edges: rows and columns with losses")] : []),
    );
  }

  text(row, column) {
    const place = this.place(row, column);
    const { probes, losses, p50_ns, p99_ns } = this.window;
    const ends = `${this.name(row)} → ${this.name(column)}`;
    if (!probes[place]) return `${ends}: not probed in this window`;
    return (
      `${ends}: ${count(probes[place])} probes, ${count(losses[place])} lost ` +
      `(${share(losses[place], probes[place])}), ` +
      `half within ${duration(p50_ns[place])}, 99 of 100 within ${duration(p99_ns[place])}`
    );
  }

  say() {
    by("cell").textContent = this.rows.length
      ? this.text(this.at.row, this.at.column)
      : "No ToR has such a name.";
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.margin) / this.cell);
    const row = Math.floor((event.clientY - box.top - this.top) / this.cell);
    const size = this.rows.length;
    if (row < 0 || column < 0 || row >= size || column >= size) return false;
    if (row !== this.at.row || column !== this.at.column) {
      this.at = { row, column };
      this.mark();
    }
    this.say();
    return true;
  }

  // Moving over a large matrix does not draw all of it for each step.
  mark() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  key(event) {
    const size = this.rows.length;
    if (!size) return;
    const step = event.shiftKey ? 10 : 1;
    const moves = { ArrowUp: [-step, 0], ArrowDown: [step, 0], ArrowLeft: [0, -step], ArrowRight: [0, step] };
    const clamp = (place) => Math.min(size - 1, Math.max(0, place));
    if (moves[event.key]) {
      const [down, right] = moves[event.key];
      this.at = { row: clamp(this.at.row + down), column: clamp(this.at.column + right) };
    } else if (event.key === "Home") this.at = { row: this.at.row, column: 0 };
    else if (event.key === "End") this.at = { row: this.at.row, column: size - 1 };
    else if (event.key === "Enter" || event.key === " ") this.enter();
    else if (event.key === "n") this.next_loss();
    else return;
    event.preventDefault();
    this.mark();
    this.say();
  }

  next_loss() {
    const size = this.rows.length;
    const from = this.at.row * size + this.at.column;
    for (let step = 1; step <= size * size; step += 1) {
      const place = (from + step) % (size * size);
      const [row, column] = [Math.floor(place / size), place % size];
      if (this.window.losses[this.place(row, column)]) {
        this.at = { row, column };
        return;
      }
    }
  }

  enter() {
    if (this.rows.length) this.open(this.name(this.at.row), this.name(this.at.column));
  }

  // The same in words: the pairs with the most loss, or the longest round trips.
  worst() {
    if (!this.window) return;
    const size = this.rows.length;
    let worst = [];
    for (let row = 0; row < size; row += 1) {
      for (let column = 0; column < size; column += 1) {
        const value = this.value(this.place(row, column));
        if (value) worst.push([value, row, column]);
      }
      // A short list is enough at any time.
      if (worst.length > 4096 || row === size - 1)
        worst = worst.sort((one, other) => other[0] - one[0]).slice(0, 5);
    }
    const { probes, losses, p50_ns, p99_ns } = this.window;
    const line = ([, row, column]) => {
      const [from, to, place] = [this.name(row), this.name(column), this.place(row, column)];
      return [
        go(`${from} → ${to}`, () => this.open(from, to)),
        count(probes[place]),
        count(losses[place]),
        share(losses[place], probes[place]),
        duration(p50_ns[place]),
        duration(p99_ns[place]),
      ];
    };
    const heads = [
      ["pair"],
      ["probes", "number"],
      ["lost", "number"],
      ["loss", "number"],
      ["half", "number"],
      ["99 of 100", "number"],
    ];
    by("worst").replaceChildren(
      worst.length
        ? table(heads, worst.map(line), "Worst pairs")
        : el(
            "p",
            { class: "quiet" },
            this.mode === "loss" ? "Nothing was lost in this window." : "No round trips.",
          ),
    );
  }
}
