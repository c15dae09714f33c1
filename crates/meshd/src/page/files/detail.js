// Going down: a pair of ToRs, a flow, the routers that it meets, the finding and its evidence.

import { amount, ask, by, count, duration, el, facts, go, share, table, time } from "./tools.js";

const NAMES = {
  ok: "answered",
  slow: "of these slow",
  ack2_lost: "second answer lost",
  ack1_lost: "answer lost",
  time_out: "nothing came",
  late: "answered too late",
  invalid: "times that cannot be",
  host: "own host at fault",
};

export class Detail {
  constructor(page) {
    this.page = page;
    this.levels = [];
    this.draw();
  }

  // Begins anew with a pair.
  async pair(from, to, by_hand = true) {
    await this.enter([{ kind: "pair", from, to }], by_hand);
  }

  async finding(id, by_hand = true) {
    await this.enter([{ kind: "finding", id }], by_hand);
  }

  async down(level) {
    await this.enter([...this.levels, level], true);
  }

  async up() {
    if (!this.levels.length) return;
    await this.enter(this.levels.slice(0, -1), true);
    if (!this.levels.length) by("cells").focus();
  }

  async enter(levels, by_hand) {
    this.levels = levels;
    await this.refresh();
    if (by_hand && levels.length) by("detail").focus({ preventScroll: false });
  }

  // Another window: the same place, other numbers.
  async refresh() {
    const levels = this.levels;
    const level = levels[levels.length - 1];
    const pair = [...levels].reverse().find((one) => one.kind === "pair" || one.kind === "flow");
    this.error = null;
    if (level && level.kind !== "finding" && pair) {
      const window = this.page.window ? this.page.window.number : "newest";
      const query = new URLSearchParams({ from: pair.from, to: pair.to, window });
      try {
        this.answer = await ask(`/api/pair?${query}`);
      } catch (error) {
        this.answer = null;
        this.error = error.message;
      }
    }
    if (levels === this.levels) this.draw();
  }

  draw() {
    const level = this.levels[this.levels.length - 1];
    by("crumbs").replaceChildren(...this.crumbs());
    const draw = {
      pair: () => this.draw_pair(),
      flow: () => this.draw_flow(level),
      finding: () => this.draw_finding(level),
    };
    let inside = [el("p", { class: "quiet" }, "Choose a cell of the matrix, or a finding.")];
    if (this.error) inside = [el("p", { class: "bad" }, `This cannot be shown: ${this.error}.`)];
    else if (level) inside = draw[level.kind]();
    by("inside").replaceChildren(...inside.filter(Boolean));
    this.page.followed(level && level.kind === "flow" && !this.error ? this.flow(level) : null);
  }

  crumbs() {
    const title = (level) =>
      ({
        pair: () => `${level.from} → ${level.to}`,
        flow: () => `port ${level.key.port}`,
        finding: () => `finding ${level.id}`,
      })[level.kind]();
    const all = [
      ["all", () => this.enter([], true).then(() => by("cells").focus())],
      ...this.levels.map((level, place) => [
        title(level),
        () => this.enter(this.levels.slice(0, place + 1), true),
      ]),
    ];
    return all
      .flatMap(([text, click], place) => [
        place ? el("span", { "aria-hidden": "true" }, "›") : null,
        place === all.length - 1 ? el("span", { "aria-current": "page" }, text) : go(text, click),
      ])
      .filter(Boolean);
  }

  draw_pair() {
    const { from, to, probes, lost, p50_ns, p99_ns, flows, detail, probes_of_other_flows } = this.answer;
    const rows = flows.map((flow) => [
      go(`${flow.from} → ${flow.to}`, () => this.down({ kind: "flow", from, to, key: key(flow) })),
      `${flow.port} / ${flow.reply_port}`,
      count(all(flow)),
      lossy(flow.lost),
      duration(flow.trips.p99_ns),
    ]);
    const heads = [
      ["flow"],
      ["ports", "number"],
      ["probes", "number"],
      ["lost", "number"],
      ["99 of 100", "number"],
    ];
    const left = probes_of_other_flows
      ? `${count(probes_of_other_flows)} more probes are of flows that are not shown${
          detail === "trouble" ? ": of older windows only flows with trouble are." : "."
        }`
      : null;
    return [
      facts([
        ["window", `${this.answer.window}, until ${time(this.answer.end_ms)}`],
        ["probes", count(probes)],
        ["lost", `${count(lost)} (${share(lost, probes)})`],
        ["half within", duration(p50_ns)],
        ["99 of 100 within", duration(p99_ns)],
      ]),
      el("h3", {}, `Flows (${flows.length})`),
      flows.length
        ? table(heads, rows, "Flows of the pair")
        : el(
            "p",
            { class: "quiet" },
            probes ? "No flow of this pair is kept." : "This pair was not probed in this window.",
          ),
      left ? el("p", { class: "quiet" }, left) : null,
    ];
  }

  flow(level) {
    if (!this.answer) return null;
    return this.answer.flows.find((flow) => same(key(flow), level.key)) || null;
  }

  draw_flow(level) {
    const flow = this.flow(level);
    const { from, to, port, reply_port } = level.key;
    const head = facts([
      ["from", from],
      ["to", to],
      ["port of probes", String(port)],
      ["port of answers", String(reply_port)],
    ]);
    if (!flow) return [head, el("p", { class: "quiet" }, "This flow is not kept of this window.")];
    const outcomes = Object.entries(flow.outcomes)
      .filter(([name, number]) => number || name === "ok")
      .map(([name, number]) => [
        NAMES[name] || name,
        lossy(count(number), number && /lost|time_out/.test(name)),
      ]);
    const told = this.page.findings().filter((finding) => touches(finding, flow));
    return [
      head,
      el("h3", {}, `Probes (${count(all(flow))})`),
      facts(outcomes),
      el("h3", {}, "Round trips"),
      ...bars(flow.trips),
      el("h3", {}, "Path of probes"),
      this.path(flow.from, flow.there, flow.to),
      el("h3", {}, "Path of answers"),
      this.path(flow.to, flow.back, flow.from),
      el("h3", {}, "Findings on its way"),
      told.length
        ? el(
            "div",
            {},
            ...told.map((finding) =>
              el(
                "p",
                {},
                go(`${finding.suspects.map((one) => one.name).join(" or ")}: evidence`, () =>
                  this.down({ kind: "finding", id: finding.id }),
                ),
              ),
            ),
          )
        : el("p", { class: "quiet" }, "None that is known to be on it."),
    ];
  }

  // The routers of a way. A suspect is named as such; a link is where its second end is.
  path(first, way, last) {
    const suspects = this.page.findings().flatMap((finding) => finding.suspects);
    const why = (before, name) =>
      suspects.some(({ kind, parts }) => kind !== "link" && kind !== "host" && parts[0] === name)
        ? "suspect"
        : suspects.some(({ kind, parts }) => kind === "link" && parts[0] === before && parts[1] === name)
          ? "suspect: the link to it"
          : null;
    let before = null;
    const item = (name, more) => {
      const bad = why(before, name);
      before = name;
      return el(
        "li",
        { class: bad ? "suspect" : undefined },
        name,
        bad ? ` (${bad})` : "",
        more ? el("span", { class: "quiet" }, ` ${more}`) : null,
      );
    };
    const silent = (text) => {
      before = null;
      return el("li", { class: "quiet" }, text);
    };
    const hop = (one) =>
      one.name
        ? item(one.name, one.address)
        : one.address
          ? item(one.address, "not in the topology file")
          : silent("a router that says nothing");
    const items = [
      item(first),
      ...(way ? way.hops.map(hop) : [silent("not traced yet")]),
      ...(way && !way.reaches ? [silent("the rest is not known")] : []),
      item(last),
    ];
    return el(
      "div",
      {},
      el("ol", { class: "path" }, ...items),
      way ? el("p", { class: "quiet" }, `traced at ${time(way.traced_ms)}`) : null,
    );
  }

  draw_finding(level) {
    const finding = this.page.find(level.id);
    if (!finding) return [el("p", { class: "quiet" }, "This finding is not known in this window.")];
    const { evidence } = finding;
    const word = finding.trouble === "delay" ? "slow" : "lost";
    const top = evidence.top.map((flow) => [
      go(`${flow.from} → ${flow.to}`, () =>
        this.down({ kind: "flow", from: flow.from_tor, to: flow.to_tor, key: key(flow) }),
      ),
      `${flow.port} / ${flow.reply_port}`,
      amount(flow.packets),
    ]);
    const other = evidence.runner_up;
    return [
      el("p", {}, el("strong", {}, finding.suspects.map((one) => one.name).join(" or "))),
      el(
        "p",
        {},
        el("span", { class: `tag ${finding.severity}` }, finding.severity),
        ` ${finding.trouble}, since ${time(
          finding.since_ms,
        )}${finding.over_ms ? `, over at ${time(finding.over_ms)}` : ""}`,
      ),
      finding.suspects.length > 1 ? el("p", { class: "quiet" }, "No flow tells these apart.") : null,
      el("h3", {}, "Evidence"),
      facts([
        ["packets that crossed it", amount(evidence.crossings)],
        [`of these ${word}`, amount(evidence.losses)],
        [`would be ${word} without it`, amount(evidence.expected)],
        ["chance for each packet", share(evidence.rate, 1)],
        ["tuples that never pass", share(evidence.share, 1)],
        ["explains (nats)", amount(evidence.gain)],
      ]),
      el(
        "p",
        { class: "quiet" },
        other
          ? `The best other explanation is ${other.suspect.name}; it explains ${amount(
              other.less,
            )} nats less.`
          : "Nothing else explains it.",
      ),
      el("h3", {}, `Services${finding.priority ? ` (${finding.priority})` : ""}`),
      ...affected(finding),
      el("h3", {}, "Flows with the most trouble"),
      top.length
        ? table([["flow"], ["ports", "number"], [word, "number"]], top, "Flows with the most trouble")
        : el("p", { class: "quiet" }, "None is told."),
    ];
  }
}

// Services that cross what is bad, with some of their queue pairs.
function affected(finding) {
  if (!finding.services.length)
    return [
      el(
        "p",
        { class: "quiet" },
        finding.priority ? "No service is known to cross it." : "What it means for services is not known.",
      ),
    ];
  const rows = finding.services.map((one) => [
    one.name,
    one.priority === "P0" ? lossy("P0: suffers", true) : "P1: crosses it",
    count(one.flows),
    one.examples.map(({ from, to, port }) => `${from} → ${to} port ${port}`).join("; "),
  ]);
  const heads = [["service"], ["state"], ["queue pairs", "number"], ["some of them"]];
  const more = finding.services_left_out;
  return [
    table(heads, rows, "Services that cross it"),
    more ? el("p", { class: "quiet" }, `And ${count(more)} more.`) : null,
  ];
}

const key = ({ from, to, port, reply_port }) => ({ from, to, port, reply_port });
const same = (one, other) => ["from", "to", "port", "reply_port"].every((name) => one[name] === other[name]);
const all = (flow) =>
  Object.entries(flow.outcomes).reduce((sum, [name, number]) => (name === "slow" ? sum : sum + number), 0);
const lossy = (text, is_bad = Number(text) > 0) =>
  is_bad ? el("span", { class: "bad" }, String(text)) : String(text);

export const crossed = (flow) =>
  [
    [flow.from, flow.there, flow.to],
    [flow.to, flow.back, flow.from],
  ].map(([first, way, last]) => [
    first,
    ...(way ? way.hops.map((hop) => hop.name || hop.address || "?") : []),
    last,
  ]);

// Whether a suspect is on the way of a flow, as far as that is known; or the flow is named in the evidence.
function touches(finding, flow) {
  const ways = crossed(flow).map((names) => names.join("\n"));
  const on = ({ kind, parts }) =>
    kind !== "host" && ways.some((way) => `\n${way}\n`.includes(`\n${parts.join("\n")}\n`));
  return finding.suspects.some(on) || finding.evidence.top.some((top) => same(key(top), key(flow)));
}

function bars(trips) {
  if (!trips.count) return [el("p", { class: "quiet" }, "None came back in time.")];
  const most = Math.max(...trips.buckets.map(([, number]) => number));
  const made = trips.buckets.map(([nanos, number]) => {
    const bar = el("div", { title: `${count(number)} within ${duration(nanos)}` });
    bar.style.height = `${(100 * number) / most}%`;
    return bar;
  });
  const [first, last] = [trips.buckets[0][0], trips.buckets[trips.buckets.length - 1][0]];
  return [
    el(
      "div",
      {
        class: "bars",
        role: "img",
        "aria-label": `${trips.count} round trips from ${duration(first)} to ${duration(last)}`,
      },
      ...made,
    ),
    el("div", { class: "between" }, el("span", {}, duration(first)), el("span", {}, duration(last))),
    facts([
      ["round trips", count(trips.count)],
      ["half within", duration(trips.p50_ns)],
      ["99 of 100 within", duration(trips.p99_ns)],
    ]),
  ];
}
