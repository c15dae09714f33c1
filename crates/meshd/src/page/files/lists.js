// What stands at the side: findings, services, hosts, and what was not taken.

import { amount, by, count, duration, el, share, since, table, time } from "./tools.js";

export function findings(open, over, chosen, now, click) {
  const card = (finding) => {
    const { evidence } = finding;
    const word = finding.trouble === "delay" ? "slow" : "lost";
    return el(
      "button",
      {
        type: "button",
        class: `finding ${finding.severity}${finding.over_ms ? " over" : ""}`,
        "data-finding": finding.id,
        "aria-current": finding.id === chosen ? "true" : undefined,
        click: () => click(finding.id),
      },
      el("strong", {}, finding.suspects.map((one) => one.name).join(" or ")),
      el("span", { class: `tag ${finding.severity}` }, finding.severity),
      finding.priority ? el("span", { class: `tag ${finding.priority}` }, finding.priority) : null,
      ` ${finding.trouble}: ${amount(evidence.losses)} of ${amount(evidence.crossings)} packets ${word}`,
      el("br"),
      finding.services.length
        ? el("span", {}, `services: ${finding.services.map((one) => one.name).join(", ")}`)
        : null,
      finding.services.length ? el("br") : null,
      el(
        "span",
        { class: "quiet" },
        finding.over_ms
          ? `${time(finding.since_ms)} to ${time(finding.over_ms)}`
          : `since ${time(finding.since_ms)}, for ${since(finding.since_ms, now)}`,
      ),
    );
  };
  const inside = open.length ? open.map(card) : [el("p", { class: "quiet" }, "Nothing is known to be bad.")];
  if (over.length) {
    const was_open = by("over") && by("over").open;
    inside.push(
      el(
        "details",
        { id: "over", open: was_open ? "" : undefined },
        el("summary", {}, `Over (${over.length})`),
        ...over.slice(0, 50).map(card),
      ),
    );
  }
  by("findings-title").textContent = `Findings (${open.length})`;
  by("findings").replaceChildren(...inside);
}

// What a priority means, in words.
const MEANS = { P0: "suffers", P1: "crosses what is bad" };

export function services(window) {
  const all = window.services;
  const suffers = all.filter((one) => one.priority === "P0").length;
  const rows = all.slice(0, 20).map((one) => [
    one.name,
    one.hosts > 2 ? `${count(one.hosts)} hosts` : one.some_hosts.join(", "),
    count(one.flows),
    count(one.again),
    one.priority
      ? el(
          "span",
          { class: one.priority === "P0" ? "bad" : "" },
          `${MEANS[one.priority]} (${one.priority}, ${one.findings.map((id) => `finding ${id}`).join(", ")})`,
        )
      : "well",
  ]);
  const more = all.length - rows.length + window.services_left_out;
  by("services-title").textContent = `Services (${count(all.length + window.services_left_out)})`;
  by("services").replaceChildren(
    ...(rows.length
      ? [
          table(
            [["service"], ["hosts"], ["queue pairs", "number"], ["sent again", "number"], ["state"]],
            rows,
            "Services",
          ),
        ]
      : []),
    el(
      "p",
      { class: "quiet" },
      [
        !rows.length
          ? "No service is known: programs under ferroce run, and on our endpoints, would be here."
          : suffers
            ? null
            : window.findings.length
              ? "No service suffers from what is bad."
              : "None suffers.",
        more ? `And ${count(more)} more.` : null,
      ]
        .filter(Boolean)
        .join(" "),
    ),
  );
}

export function hosts(window) {
  const troubled = window.hosts.filter(
    (host) => host.stalls || host.receive_drops || host.lapsed || host.changed_qpn,
  );
  const calm = window.hosts.length - troubled.length + window.hosts_left_out;
  const said = (host) =>
    [
      host.lapsed ? "its agent is silent" : null,
      host.stalls ? `stood still ${count(host.stalls)} times, ${duration(host.longest_ns)} at most` : null,
      host.receive_drops ? `dropped ${count(host.receive_drops)} packets` : null,
      host.changed_qpn ? "began anew" : null,
    ]
      .filter(Boolean)
      .join("; ");
  const lossy = window.hosts
    .filter((host) => host.lost && host.sent)
    .sort((one, other) => other.lost / other.sent - one.lost / one.sent)
    .slice(0, 8);
  const inside = [
    el(
      "p",
      { class: "quiet" },
      `${count(calm)} of ${count(calm + troubled.length)} have nothing to say of themselves.`,
    ),
  ];
  if (troubled.length) {
    inside.push(
      table(
        [["host"], ["says"]],
        troubled.slice(0, 20).map((host) => [host.host, said(host)]),
        "Hosts with trouble",
      ),
    );
  }
  if (troubled.length > 20)
    inside.push(el("p", { class: "quiet" }, `and ${count(troubled.length - 20)} more`));
  if (lossy.length) {
    inside.push(
      el("h3", {}, "Their own probes"),
      table(
        [["host"], ["sent", "number"], ["lost", "number"]],
        lossy.map((host) => [host.host, count(host.sent), share(host.lost, host.sent)]),
        "Hosts whose probes were lost",
      ),
    );
  }
  by("hosts").replaceChildren(...inside);
}

export function refused(state) {
  const rows = state.refused.map(({ name, count: number, why }) => [
    name.replaceAll("_", " "),
    count(number),
    why,
  ]);
  const inside = [
    rows.length
      ? table([["what"], ["how many", "number"], ["why"]], rows, "What was not taken")
      : el("p", { class: "quiet" }, "Everything that came was taken."),
  ];
  if (state.outlets.length) inside.push(el("h3", {}, "What leaves"), outlets(state.outlets));
  by("refused").replaceChildren(...inside);
}

function outlets(all) {
  const said = (outlet) =>
    [
      outlet.trouble || (outlet.last_success_ms ? `last at ${time(outlet.last_success_ms)}` : "nothing yet"),
      outlet.waiting ? `${count(outlet.waiting)} wait` : null,
      outlet.refused ? `${count(outlet.refused)} refused` : null,
      outlet.dropped ? `${count(outlet.dropped)} dropped` : null,
      outlet.kept ? `${count(outlet.kept.files)} files` : null,
    ]
      .filter(Boolean)
      .join("; ");
  const row = (outlet) => [outlet.name.replaceAll("_", " "), count(outlet.sent), said(outlet)];
  return table([["to"], ["sent", "number"], ["how it is"]], all.map(row), "What leaves the analyzer");
}
