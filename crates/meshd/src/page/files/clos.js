// The network as a picture: cores, aggregations, ToRs, and what hangs below them.

import { by, svg } from "./tools.js";

const TIERS = ["core", "aggregation", "tor"];
const TITLES = { core: "Cores", aggregation: "Aggregations", tor: "ToRs", rnic: "RNICs" };
const LEFT = 96;
const CABLES = 3000; // More are not drawn, except for those that matter.
const SINGLE = 48; // So many RNICs are drawn one by one.

export class Clos {
  constructor(choose) {
    this.choose = choose;
    this.topology = null;
    this.findings = [];
    this.path = [];
    new ResizeObserver(() => by("clos").clientWidth !== this.width && this.draw()).observe(by("clos"));
  }

  wire(topology) {
    this.topology = topology;
    this.draw();
  }

  show(findings) {
    this.findings = findings;
    this.draw();
  }

  // The names that a flow crosses, in order; none if nothing is chosen.
  follow(names) {
    this.path = names;
    this.draw();
  }

  suspects() {
    const [nodes, links] = [new Set(), new Set()];
    for (const { kind, parts } of this.findings.flatMap((finding) => finding.suspects)) {
      if (kind === "link") links.add(parts.join("\n"));
      else nodes.add(kind === "host" ? `host\n${parts[0]}` : parts[0]);
    }
    return { nodes, links };
  }

  draw() {
    if (!this.topology) return;
    const { switches, rnics, hosts } = this.topology;
    this.width = Math.max(460, by("clos").clientWidth || 900);
    const suspects = this.suspects();
    const tiers = TIERS.filter((tier) => switches.some((one) => one.tier === tier));
    const single = rnics.length <= SINGLE;
    const spots = new Map();
    const parts = { cables: [], nodes: [], marks: [] };
    const bad = (name) => suspects.nodes.has(name);
    const steps = new Set(this.path.slice(1).map((name, place) => `${this.path[place]}\n${name}`));
    const on_path = new Set(this.path);
    let y = 22;
    for (const tier of tiers) {
      const members = [...switches.keys()].filter((id) => switches[id].tier === tier);
      const pitch = (this.width - LEFT - 8) / members.length;
      const size = Math.min(110, Math.max(1.5, pitch - (pitch > 6 ? 4 : 0.5)));
      parts.marks.push(
        svg("text", { class: "tier", x: 4, y: y + 15 }, `${TITLES[tier]} (${members.length})`),
      );
      members.forEach((id, place) => {
        const x = LEFT + pitch * (place + 0.5);
        spots.set(`switch ${id}`, [x, y + 10]);
        this.node(parts, {
          name: switches[id].name,
          x,
          y,
          size,
          height: 22,
          bad: bad(switches[id].name),
          path: on_path.has(switches[id].name),
          tor: tier === "tor",
        });
      });
      y += 76;
    }
    if (single) y = this.cards(parts, spots, y, suspects, on_path);
    else y = this.groups(parts, spots, y, suspects);
    this.cables(parts, spots, { suspects, steps, single });
    const label =
      `The network: ${switches.length} switches, ${rnics.length} RNICs of ${hosts.length} hosts, ` +
      `${this.findings.length} findings`;
    by("clos").replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${this.width} ${y}`, role: "img", "aria-label": label },
        svg("g", {}, ...parts.cables),
        svg("g", {}, ...parts.nodes),
        svg("g", {}, ...parts.marks),
      ),
    );
    const notes = [];
    if (!single) notes.push("RNICs are drawn as one box for each ToR.");
    if (this.hidden)
      notes.push(`${this.hidden} cables are not drawn; those of suspects and of the chosen flow are.`);
    if (!switches.some((one) => one.tier === "core")) notes.push("With a topology file, more is told apart.");
    by("clos-note").textContent = notes.join(" ");
  }

  node(parts, { name, x, y, size, height, bad, path, tor, text, title }) {
    const kind = ["node", bad && "suspect", path && "on-path"].filter(Boolean).join(" ");
    const box = svg(
      "rect",
      { class: kind, x: x - size / 2, y, width: size, height, rx: Math.min(4, size / 4) },
      svg("title", {}, `${title || name}${bad ? " (suspect)" : ""}`),
    );
    if (tor) {
      box.addEventListener("click", () => this.choose(name));
      box.style.cursor = "pointer";
    }
    parts.nodes.push(box);
    const shown = text || name;
    const room = Math.floor((size - 6) / 6.2);
    if (room >= 3) {
      // Names differ at their ends.
      const short = shown.length > room ? `…${shown.slice(1 - room)}` : shown;
      parts.marks.push(
        svg("text", { x, y: y + height / 2 + 4, "text-anchor": "middle", "pointer-events": "none" }, short),
      );
    } else if (bad) {
      parts.marks.push(svg("text", { x, y: y - 14, "text-anchor": "middle" }, name.slice(0, 24)));
    }
    if (bad)
      parts.marks.push(
        svg("text", { class: "mark", x: x + size / 2 + 3, y: y + 6, "aria-hidden": "true" }, "!"),
      );
  }

  cards(parts, spots, y, suspects, on_path) {
    const { rnics, hosts } = this.topology;
    const order = [...rnics.keys()].sort((one, other) => rnics[one][2] - rnics[other][2] || one - other);
    const pitch = (this.width - LEFT - 8) / Math.max(1, order.length);
    const size = Math.min(110, pitch - 4);
    parts.marks.push(svg("text", { class: "tier", x: 4, y: y + 15 }, `${TITLES.rnic} (${rnics.length})`));
    order.forEach((id, place) => {
      const [name, host] = rnics[id];
      const x = LEFT + pitch * (place + 0.5);
      spots.set(`rnic ${id}`, [x, y + 10]);
      const bad = suspects.nodes.has(name) || suspects.nodes.has(`host\n${hosts[host]}`);
      this.node(parts, {
        name,
        x,
        y,
        size,
        height: 22,
        bad,
        path: on_path.has(name),
        text: hosts[host],
        title: `${name} of ${hosts[host]}`,
      });
    });
    return y + 34;
  }

  // One box for each ToR: how many RNICs, and whether one of them is a suspect.
  groups(parts, spots, y, suspects) {
    const { rnics, hosts, switches } = this.topology;
    const groups = new Map();
    rnics.forEach(([name, host, tor]) => {
      const group = groups.get(tor) || { all: 0, bad: [] };
      group.all += 1;
      if (suspects.nodes.has(name)) group.bad.push(name);
      else if (suspects.nodes.has(`host\n${hosts[host]}`)) group.bad.push(`${name} of ${hosts[host]}`);
      groups.set(tor, group);
    });
    const pitch = (this.width - LEFT - 8) / Math.max(1, groups.size);
    const size = Math.min(110, Math.max(1.5, pitch - (pitch > 6 ? 4 : 0.5)));
    parts.marks.push(svg("text", { class: "tier", x: 4, y: y + 15 }, `${TITLES.rnic} (${rnics.length})`));
    for (const [tor, { all, bad }] of groups) {
      const [x] = spots.get(`switch ${tor}`) || [LEFT, 0];
      const named = bad.length ? `; suspects: ${bad.join(", ")}` : "";
      const title = `${all} RNICs below ${switches[tor].name}${named}`;
      this.node(parts, {
        name: bad.length ? bad[0] : title,
        x,
        y: y - 28,
        size,
        height: 18,
        bad: bad.length > 0,
        text: bad.length ? bad[0] : `${all} RNICs`,
        title,
      });
    }
    return y + 6;
  }

  cables(parts, spots, { suspects, steps, single }) {
    const { switches, rnics } = this.topology;
    const all = [];
    switches.forEach((one, id) =>
      one.above.forEach((above) =>
        all.push([`switch ${id}`, one.name, `switch ${above}`, switches[above].name]),
      ),
    );
    if (single)
      rnics.forEach(([name, , tor], id) =>
        all.push([`rnic ${id}`, name, `switch ${tor}`, switches[tor].name]),
      );
    const draws_all = all.length <= CABLES;
    this.hidden = 0;
    for (const [low, low_name, high, high_name] of all) {
      const ways = [`${low_name}\n${high_name}`, `${high_name}\n${low_name}`];
      const bad = ways.filter((way) => suspects.links.has(way));
      const path = ways.some((way) => steps.has(way));
      if (!draws_all && !bad.length && !path) {
        this.hidden += 1;
        continue;
      }
      const [[x1, y1], [x2, y2]] = [spots.get(low), spots.get(high)];
      const kind = `cable${path ? " on-path" : ""}${bad.length ? " suspect" : ""}`;
      const line = svg("line", { class: kind, x1, y1, x2, y2 });
      if (bad.length) {
        const names = bad.map((way) => way.replace("\n", " → ")).join(", ");
        line.append(svg("title", {}, `suspect: ${names}`));
        // The mark stands nearer to where packets come from.
        const part = bad.includes(ways[0]) ? 0.35 : 0.65;
        parts.marks.push(
          svg("text", { class: "mark", x: x1 + (x2 - x1) * part + 4, y: y1 + (y2 - y1) * part }, "!"),
        );
      }
      parts.cables.push(line);
    }
  }
}
