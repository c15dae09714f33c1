//! A real mesh with a bad host, seen by a person with a browser.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use crate::waiting::page_support::browser::Browser;
use crate::waiting::page_support::mesh::Mesh;
use crate::waiting::page_support::{ask, wait_for};
use ferroce_meshd::findings;
use ferroce_testkit::judge;
use ferroce_verbs::time::now;
use serde_json::{Value, json};

#[test]
fn a_bad_host_is_on_the_page_soon_and_clicks_lead_to_its_evidence() {
    if !judge::is_here("chromium") {
        return;
    }
    // The browser looks before there is anything to see.
    let mesh = Mesh::start([127, 0, 146, 50], &["rack1", "rack1", "rack1", "rack1", "rack2", "rack2"], 2);
    let (place, url) = (mesh.page(), mesh.analyzer.address().to_string());
    let mut browser = Browser::start("mesh", 1500, 1000);
    browser.open(&format!("http://{place}/"));
    let seen = || format!("a finding: {:?} {}", findings(&url), ask(place, "/api/window/newest"));
    let found = wait_for(seen, || findings(&url).ok()?.open.into_iter().next());
    let told = now();
    assert_eq!(found.suspects, ["host host3"], "{found:?}");
    browser
        .until("document.querySelector('#findings .finding:not(.over) strong').innerText === 'host host3'");
    let late = now() - told;
    assert!(late < Duration::from_secs(5), "{late:?} after it was told");
    assert_eq!(browser.text("#status"), "live");

    // Time stands still on the page from here on, so that its numbers can be compared.
    browser.until("page.state.windows.at(-2)[5] > 0");
    let number = browser.eval("page.travel(page.numbers().length - 2).then(() => page.window.number)");
    let window = ask(place, &format!("/api/window/{number}"));
    browser.until("document.getElementById('status').innerText === 'past'");
    let finding = &window["findings"][0];
    assert_eq!(finding["kind"], "host");
    browser.click_until(
        "#findings .finding",
        "document.getElementById('inside').innerText.includes('Evidence')",
    );
    let shown = browser.eval("[...document.querySelectorAll('#inside dd')].map((it) => it.innerText)");
    let evidence = &finding["evidence"];
    for (place, name) in [(0, "crossings"), (1, "losses")] {
        let shown: f64 = shown[place].as_str().unwrap().replace(',', "").parse().unwrap();
        let exact = evidence[name].as_f64().unwrap();
        assert!((shown - exact).abs() <= 0.51, "{name}: {shown} for {exact}");
    }
    assert!(evidence["losses"].as_f64().unwrap() > 2.0, "{evidence}");

    // From the evidence to the flow with the most trouble, and up to its pair.
    let top = &evidence["top"][0];
    browser.click("#inside tbody button");
    browser.until("document.querySelector('#crumbs [aria-current]').innerText.startsWith('port ')");
    let pair = |from: &str, to: &str| ask(place, &format!("/api/pair?from={from}&to={to}&window={number}"));
    let flows = pair(top["from_tor"].as_str().unwrap(), top["to_tor"].as_str().unwrap());
    let same =
        |flow: &&Value| ["from", "to", "port", "reply_port"].iter().all(|name| flow[name] == top[name]);
    let flow = flows["flows"].as_array().unwrap().iter().find(same);
    let inside = browser.text("#inside");
    assert!(inside.contains(top["to"].as_str().unwrap()), "{inside}");
    // The evidence is of three windows, and this flow need not have been probed in the last.
    if let Some(flow) = flow {
        for (name, shown) in [("ok", "answered"), ("time_out", "nothing came")] {
            let count = &flow["outcomes"][name];
            assert!(*count == json!(0) || inside.contains(&format!("{shown}\n{count}")), "{count} {inside}");
        }
    }

    // From the matrix down, with other numbers.
    browser.key("Escape");
    browser.key("Escape");
    browser.until("page.detail.levels.length === 0");
    browser.key("m");
    browser.key("Home");
    browser.key("Enter");
    browser.until("document.querySelector('#crumbs [aria-current]').innerText === 'rack1 → rack1'");
    let below = pair("rack1", "rack1");
    let shown = browser.text("#inside");
    assert!(shown.contains(&format!("probes\n{}", below["probes"])), "{shown}: {below}");
    assert!(shown.contains(&format!("{} (", below["lost"])), "{shown}: {below}");
    let rows = browser.eval("document.querySelectorAll('#inside tbody tr').length").as_u64().unwrap();
    // Meanwhile the window may have become an old one, of which only flows with trouble are kept.
    let told = u64::try_from(below["flows"].as_array().unwrap().len()).unwrap();
    assert!(
        if below["detail"] == "all" { rows == told } else { rows >= told },
        "{rows} rows for {told} flows"
    );
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}
