// The page: asks the analyzer, follows it, and puts the parts together.

import { Clos } from "./clos.js";
import { Detail, crossed } from "./detail.js";
import { Matrix } from "./matrix.js";
import * as lists from "./lists.js";
import { ask, by, count, css, share, sharp, time } from "./tools.js";

const SILENT = 7000; // After so long without a word, what is shown is called stale.

class Page {
  constructor() {
    this.state = null;
    this.window = null;
    this.over = [];
    this.is_live = true;
    this.heard = 0;
    this.wiring = null;
    this.matrix = new Matrix((from, to) => this.detail.pair(from, to));
    this.clos = new Clos((tor) => this.filter(tor));
    this.detail = new Detail(this);
    by("time").addEventListener("input", () => this.travel(Number(by("time").value)));
    by("earlier").addEventListener("click", () => this.step(-1));
    by("later").addEventListener("click", () => this.step(1));
    by("live").addEventListener("click", () => this.live());
    by("theme").addEventListener("click", () => this.theme());
    by("help").addEventListener("click", () => by("keys").showModal());
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("resize", () => this.spark());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.paint();
    setInterval(() => this.tick(), 500);
    this.follow();
  }

  // New windows come as events; a connection that breaks is opened again.
  follow() {
    const events = new EventSource("/events");
    const word = () => {
      this.heard = Date.now();
      this.tick();
    };
    events.addEventListener("alive", word);
    events.addEventListener("window", () => {
      word();
      this.update();
    });
    events.addEventListener("error", () => {
      if (events.readyState !== EventSource.CLOSED) return;
      setTimeout(() => this.follow(), 2000);
    });
  }

  // One question after the other: if more windows come meanwhile, the newest is asked for once more.
  async update() {
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    try {
      const state = await ask("/api/state");
      if (state.wiring !== this.wiring) {
        this.clos.wire(await ask("/api/topology"));
        this.wiring = state.wiring;
      }
      this.over = (await ask("/api/findings")).over;
      this.state = state;
      const numbers = state.windows.map((row) => row[0]);
      const shown = this.window ? this.window.number : 0;
      // Of an analyzer that began anew, windows have small numbers again; old ones are gone after a while.
      if (!this.is_live && !numbers.includes(shown)) this.is_live = true;
      if (this.is_live && numbers.length) await this.fetch(numbers[numbers.length - 1]);
      this.trouble = null;
    } catch (error) {
      this.trouble = error.message;
    }
    this.asking = false;
    this.show();
    if (this.again) {
      this.again = false;
      this.update();
    }
  }

  async fetch(number) {
    this.wanted = number;
    const found = await ask(`/api/window/${number}`);
    // While this was on its way, another one may have been chosen.
    if (this.wanted !== number) return;
    this.window = found;
    await this.detail.refresh();
  }

  numbers() {
    return this.state ? this.state.windows.map((row) => row[0]) : [];
  }

  step(by_how_many) {
    const numbers = this.numbers();
    const place = numbers.indexOf(this.window ? this.window.number : 0) + by_how_many;
    if (place >= 0 && place < numbers.length) this.travel(place);
  }

  // To the window at this place; the last one is followed.
  async travel(place) {
    const numbers = this.numbers();
    if (!numbers.length) return;
    this.is_live = place >= numbers.length - 1;
    try {
      await this.fetch(numbers[place]);
    } catch (error) {
      this.trouble = error.message;
    }
    this.show();
  }

  live() {
    this.is_live = true;
    this.update();
  }

  findings() {
    return this.window ? this.window.findings : [];
  }

  find(id) {
    return [...this.findings(), ...this.over].find((finding) => finding.id === id);
  }

  followed(flow) {
    if (this.clos) this.clos.follow(flow ? crossed(flow)[0] : []);
  }

  filter(tor) {
    by("filter").value = by("filter").value === tor ? "" : tor;
    this.matrix.show(this.window);
  }

  show() {
    const { state, window } = this;
    this.tick();
    if (!state) return;
    lists.refused(state);
    const { probes } = state.totals;
    by("summary").textContent = `${count(state.agents)} agents, ${count(probes)} probes since the start`;
    if (!window) return;
    const at = this.is_live ? Date.now() : window.end_ms;
    const over = this.over.filter((finding) => this.is_live || finding.over_ms <= window.end_ms);
    const chosen = this.detail.levels.find((level) => level.kind === "finding");
    lists.findings(window.findings, over, chosen && chosen.id, at, (id) => this.detail.finding(id));
    lists.services(window);
    lists.hosts(window);
    this.matrix.show(window);
    this.clos.show(window.findings);
    const numbers = this.numbers();
    const place = numbers.indexOf(window.number);
    Object.assign(by("time"), { min: 0, max: Math.max(0, numbers.length - 1), value: place });
    by("time").setAttribute("aria-valuetext", `window ${window.number}, until ${time(window.end_ms)}`);
    by("earlier").disabled = place <= 0;
    by("later").disabled = place >= numbers.length - 1;
    by("live").setAttribute("aria-pressed", String(this.is_live));
    by("when").textContent = `${time(window.start_ms)} to ${time(window.end_ms)}, window ${window.number}${
      window.complete ? "" : ", not all told"
    }`;
    document.body.dataset.window = window.number;
    this.spark();
  }

  // What is shown is live, of the past, or stale; the last one is said aloud.
  tick() {
    const [now, newest] = [Date.now(), this.state && this.state.windows[this.state.windows.length - 1]];
    const silent = this.heard && now - this.heard > SILENT;
    const length = newest ? newest[2] - newest[1] : 0;
    const quiet = newest && now - newest[2] > 3 * length + 30000;
    let [text, kind, banner] = ["connecting", "", ""];
    if (silent) {
      [text, kind] = ["stale", "stale"];
      const seconds = Math.round((now - this.heard) / 1000);
      banner = `No word from the analyzer for ${seconds} s. What you see is old; it is asked again.`;
    } else if (this.trouble) {
      [text, kind, banner] = ["stale", "stale", `The analyzer does not answer: ${this.trouble}.`];
    } else if (!this.is_live) [text, kind] = ["past", "past"];
    else if (this.heard && !newest) text = "waiting for the first window";
    else if (quiet) {
      [text, kind] = ["stale", "stale"];
      banner = `The newest window ended at ${time(newest[2])}: no agent has told anything since.`;
    } else if (this.heard) [text, kind] = ["live", "live"];
    if (this.state && this.state.store_trouble)
      banner = this.state.leads
        ? `What is found cannot be kept: ${this.state.store_trouble}.`
        : `This analyzer stands by: ${this.state.store_trouble}.`;
    if (!banner && this.state && this.state.trouble)
      banner = `The controller is not heard: ${this.state.trouble}.`;
    const pill = by("status");
    if (pill.textContent !== text) Object.assign(pill, { textContent: text, className: `pill ${kind}` });
    by("banner").hidden = !banner;
    if (by("banner").textContent !== banner) by("banner").textContent = banner;
    document.body.classList.toggle("is-stale", kind === "stale");
  }

  // Loss over time, and in which windows something was bad.
  spark() {
    if (!this.state || !this.state.windows.length) return;
    const { windows } = this.state;
    const width = by("time").clientWidth;
    const pen = sharp(by("spark"), width, 34);
    pen.clearRect(0, 0, width, 34);
    const parts = windows.map(([, , , probes, lost]) => (probes ? lost / probes : 0));
    const most = Math.max(0.001, ...parts);
    // The knob of the slider does not reach the edges.
    const inner = width - 16;
    const place = (number) => 8 + (windows.length > 1 ? (inner * number) / (windows.length - 1) : inner);
    const step = Math.max(1.5, Math.min(14, inner / windows.length - 1));
    windows.forEach(([number, , , , , open], at) => {
      const x = place(at) - step / 2;
      pen.fillStyle = open ? css("--bad") : css("--quiet");
      if (open) pen.fillRect(x, 0, step, 4);
      const height = Math.max(1, (26 * parts[at]) / most);
      pen.fillRect(x, 34 - height, step, height);
      if (this.window && number === this.window.number) {
        pen.strokeStyle = css("--focus");
        pen.strokeRect(x - 2, 0.5, step + 4, 33);
      }
    });
    by("spark").title = `The highest bar is a loss of ${share(most, 1)}`;
  }

  paint() {
    let wish = null;
    try {
      wish = localStorage.getItem("theme");
    } catch {
      /* A browser that keeps nothing is fine. */
    }
    const theme = wish || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    by("theme").textContent = theme === "dark" ? "Light" : "Dark";
    this.matrix.draw();
    this.spark();
  }

  theme() {
    try {
      localStorage.setItem("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    } catch {
      /* As above. */
    }
    this.paint();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || by("keys").open) return;
    const is_text = event.target.matches("input[type=search]");
    if (event.key === "Escape") {
      if (is_text) event.target.blur();
      else this.detail.up();
      return;
    }
    if (is_text) return;
    const keys = {
      "?": () => by("keys").showModal(),
      "[": () => this.step(-1),
      "]": () => this.step(1),
      l: () => this.live(),
      t: () => this.theme(),
      c: () => this.matrix.next_colour(),
      m: () => by("cells").focus(),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }
}

window.page = new Page();
