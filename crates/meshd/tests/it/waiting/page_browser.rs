//! The page in a real browser, which clicks and presses keys: what it shows are the numbers of the API.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use crate::waiting::page_support::browser::Browser;
use crate::waiting::page_support::simulated::{LENGTH, SERVICE, Simulated};
use crate::waiting::page_support::{ask, wait_for};
use ferroce_mesh::{FlowKey, Outcomes, RnicId, Tier, Topology};
use ferroce_meshd::board::{BoardConfig, BoardFlow, BoardService, BoardWindow, SharedBoard, Trips};
use ferroce_meshd::page::{PageConfig, PageListener, PageServer};
use ferroce_meshd::{AnalyzerCounters, Histogram};
use ferroce_testkit::judge;
use ferroce_verbs::time::now;
use serde_json::json;

fn serve(address: &str, board: &SharedBoard) -> PageServer {
    let met = || (AnalyzerCounters::default(), String::new());
    // The address of one that was there a moment ago may not be free yet.
    let start = || {
        let listener = PageListener::bind(address.parse().unwrap()).ok()?;
        PageServer::start(listener, board.clone(), PageConfig::default(), met).ok()
    };
    wait_for(|| format!("the address {address}"), start)
}

/// Windows of a simulated network, moved so that the last one ended just now.
fn board(network: &mut Simulated, windows: u64, since: u64) -> SharedBoard {
    let board = SharedBoard::new(BoardConfig::default());
    let wall = ferroce_verbs::time::ClockReading::take().wall;
    let wall = wall.duration_since(std::time::UNIX_EPOCH).unwrap();
    let first = u64::try_from(wall.as_nanos()).unwrap() - windows * LENGTH;
    for number in 0..windows {
        let mut window = network.window(number, since);
        (window.start, window.end) = (first + number * LENGTH, first + (number + 1) * LENGTH);
        window.open.iter_mut().for_each(|finding| finding.since = first + since * LENGTH);
        let topology = Arc::clone(&window.topology);
        let tor = |rnic| Some(topology.switch(topology.rnic(rnic).tor).name.as_str());
        let mut counted = board.lock();
        for BoardFlow { key, outcomes, .. } in &window.flows {
            counted.flow(tor(key.from), tor(key.to), outcomes, &Histogram::default());
        }
        drop(counted);
        board.window(window);
    }
    network.trace(&mut board.lock(), 100_000);
    board
}

fn url(page: &PageServer) -> String {
    format!("http://{}/", page.address())
}

/// The middle of a cell of the matrix on the screen.
fn cell(browser: &mut Browser, row: usize, column: usize) -> (f64, f64) {
    let middle = browser.eval(&format!(
        "(() => {{ const it = page.matrix; it.canvas.scrollIntoView({{ block: 'center' }});
           const box = it.canvas.getBoundingClientRect();
           return [box.left + it.margin + ({column} + 0.5) * it.cell,
             box.top + it.top + ({row} + 0.5) * it.cell]; }})()"
    ));
    (middle[0].as_f64().unwrap(), middle[1].as_f64().unwrap())
}

#[test]
fn clicks_lead_from_the_matrix_down_to_the_evidence() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut network = Simulated::new(8, 3, 4);
    let board = board(&mut network, 12, 4);
    let page = serve("127.0.146.21:0", &board);
    let place = page.address();
    let mut browser = Browser::start("clicks", 1500, 1000);
    browser.open(&url(&page));
    browser.until(
        "document.getElementById('status').innerText === 'live' && document.body.dataset.window === '12'",
    );
    assert_eq!(browser.text("#findings .finding strong"), "link rack2 -> agg1");
    let services = browser.text("#services");
    assert!(services.contains(SERVICE) && services.contains("suffers (P0, finding 4)"), "{services}");
    assert!(browser.text("#findings .finding").contains(&format!("services: {SERVICE}")));

    // The matrix: the cell of the pair that the evidence names first.
    let findings = ask(place, "/api/findings");
    let top = &findings["open"][0]["evidence"]["top"][0];
    let (from, to) = (top["from_tor"].as_str().unwrap(), top["to_tor"].as_str().unwrap());
    let pair = ask(place, &format!("/api/pair?from={from}&to={to}&window=12"));
    let row = |name: &str| name.strip_prefix("rack").unwrap().parse::<usize>().unwrap() - 1;
    let (x, y) = cell(&mut browser, row(from), row(to));
    browser.click_at(x, y);
    browser.until("document.querySelector('#crumbs [aria-current]').innerText.includes('→')");
    let inside = browser.text("#inside");
    assert!(inside.contains(&format!("{} (", pair["lost"])), "{inside}: {pair}");
    let told = browser.text("#cell");
    assert!(told.contains(&format!("{} probes, {} lost", pair["probes"], pair["lost"])), "{told}: {pair}");

    // Its worst flow, with its path, and the finding on it.
    browser.click("#inside tbody tr:first-child button");
    browser.until("document.querySelector('#inside .path')");
    let flow = &pair["flows"][0];
    let inside = browser.text("#inside");
    assert!(
        inside.contains(flow["from"].as_str().unwrap()) && inside.contains(&flow["port"].to_string()),
        "{inside}"
    );
    let hops: Vec<String> = browser
        .eval("[...document.querySelector('#inside .path').children].map((it) => it.firstChild.textContent)")
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    let mut named = vec![flow["from"].as_str().unwrap()];
    named.extend(flow["there"]["hops"].as_array().unwrap().iter().map(|hop| hop["name"].as_str().unwrap()));
    named.push(flow["to"].as_str().unwrap());
    assert_eq!(hops, named);
    assert_eq!(
        browser.eval("document.querySelectorAll('#clos .cable.on-path').length"),
        json!(4),
        "rnic, tor, agg, tor, rnic"
    );
    browser.click("#inside p button.go");
    browser.until("document.getElementById('inside').innerText.includes('Evidence')");
    let evidence = &findings["open"][0]["evidence"];
    let crossings = browser.eval(
        "[...document.querySelectorAll('#inside dd')].slice(0, 2).map((it) => it.innerText.replaceAll(',', ''))",
    );
    let rounded = |name: &str| evidence[name].as_f64().unwrap().round().to_string();
    assert_eq!(crossings, json!([rounded("crossings"), rounded("losses")]), "{evidence}");

    // And up again, by keys.
    for left in [2, 1, 0] {
        browser.key("Escape");
        browser.until(&format!("page.detail.levels.length === {left}"));
    }
    assert_eq!(browser.eval("document.activeElement.id"), json!("cells"));
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

#[test]
fn keys_move_in_the_matrix_and_in_time() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut network = Simulated::new(5, 2, 2);
    let board = board(&mut network, 6, 2);
    let page = serve("127.0.146.22:0", &board);
    let mut browser = Browser::start("keys", 1200, 900);
    browser.open(&url(&page));
    browser.until("document.body.dataset.window === '6'");
    browser.key("m");
    for key in ["ArrowDown", "ArrowRight", "ArrowRight"] {
        browser.key(key);
    }
    assert!(browser.text("#cell").starts_with("rack2 → rack3:"), "{}", browser.text("#cell"));
    browser.key("Enter");
    browser.until("document.querySelector('#crumbs [aria-current]').innerText === 'rack2 → rack3'");
    for number in (1..6).rev() {
        browser.key("[");
        browser.until(&format!("document.body.dataset.window === '{number}'"));
        browser.until(&format!("document.getElementById('inside').innerText.includes('{number}, until')"));
    }
    assert_eq!(browser.text("#status"), "past");
    assert!(browser.text("#findings").contains("Nothing is known to be bad"), "the first windows were good");
    // A new window does not take people out of the past.
    board.window(network.window(6, 2));
    browser.until("page.state.windows.length === 7");
    assert_eq!(browser.eval("document.body.dataset.window"), json!("1"));
    browser.key("l");
    browser.until("document.body.dataset.window === '7' && page.is_live");
    browser.key("c");
    browser.until("page.matrix.mode === 'p50'");
    browser.until("document.getElementById('legend').innerText.includes('µs')");
    let theme = browser.eval("document.documentElement.dataset.theme");
    browser.key("t");
    assert_ne!(browser.eval("document.documentElement.dataset.theme"), theme);
    browser.key("?");
    browser.until("document.getElementById('keys').open");
    browser.key("Escape");
    browser.until("!document.getElementById('keys').open");
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

#[test]
fn a_page_whose_analyzer_is_away_says_so_and_comes_back() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut network = Simulated::new(3, 2, 1);
    let first = board(&mut network, 3, 9);
    let page = serve("127.0.146.23:0", &first);
    let place = page.address();
    let mut browser = Browser::start("away", 1000, 800);
    browser.open(&url(&page));
    browser.until("document.getElementById('status').innerText === 'live'");
    drop(page);
    browser.until("document.getElementById('status').innerText === 'stale'");
    assert!(browser.text("#banner").contains("No word from the analyzer"), "{}", browser.text("#banner"));
    assert_eq!(browser.eval("document.body.dataset.window"), json!("3"), "what was there stays");
    // Another one at the same place, whose numbers begin anew.
    let second = board(&mut network, 1, 9);
    let _page = serve(&place.to_string(), &second);
    browser.until(
        "document.getElementById('status').innerText === 'live' && document.body.dataset.window === '1'",
    );
}

/// A ToR below which everything has a name that is meant to become markup.
fn hostile() -> BoardWindow {
    let names = ["<img src=x onerror=alert(1)>", "\"><script>window.hacked=1</script>", "'}];\u{202e}evil"];
    let mut builder = Topology::builder();
    let mut flows = Vec::new();
    for (number, name) in (0_u8..).zip(names) {
        builder.switch(name, Tier::Tor, []).unwrap();
        builder
            .rnic(&format!("{name}-{number}"), [10, 0, 0, number].into(), &format!("host {name}"), name)
            .unwrap();
    }
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let key = FlowKey { from: RnicId(from), to: RnicId(to), port: 50_000, reply_port: 50_001 };
        let outcomes = Outcomes { ok: 3, time_out: 2, ..Outcomes::default() };
        flows.push(BoardFlow { key, outcomes, trips: Trips::default() });
    }
    let topology = Arc::new(builder.build());
    let (hosts, open, over) = (Vec::new(), Vec::new(), Vec::new());
    let hostile = |name: &str| BoardService { service: name.to_owned(), hosts: 1, ..BoardService::default() };
    BoardWindow {
        start: 0,
        end: LENGTH,
        agents: 3,
        is_complete: true,
        topology,
        flows,
        hosts,
        open,
        over,
        services: names.map(hostile).to_vec(),
        services_left_out: 0,
    }
}

#[test]
fn names_are_text_whatever_they_are() {
    if !judge::is_here("chromium") {
        return;
    }
    let board = SharedBoard::new(BoardConfig::default());
    board.window(hostile());
    let page = serve("127.0.146.24:0", &board);
    let mut browser = Browser::start("names", 1000, 800);
    browser.open(&url(&page));
    browser.until("document.body.dataset.window === '1'");
    browser.click("#worst button");
    browser.until("document.querySelector('#crumbs [aria-current]').innerText.includes('→')");
    browser.click("#inside tbody button");
    browser.until("document.querySelector('#inside .path')");
    assert_eq!(
        browser.eval("[window.hacked === undefined, document.images.length, document.scripts.length]"),
        json!([true, 0, 1])
    );
    assert!(browser.text("body").contains("<img src=x onerror=alert(1)>"));
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

#[test]
fn a_network_of_320_tors_is_usable() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut network = Simulated::new(320, 32, 1);
    let board = board(&mut network, 2, 0);
    let page = serve("127.0.146.25:0", &board);
    let mut browser = Browser::start("large", 1500, 1000);
    browser.open(&url(&page));
    let begun = now();
    browser.until("document.body.dataset.window === '2'");
    let shown = now() - begun;
    let drawn = browser.eval(
        "(() => { const begun = performance.now(); page.matrix.draw(); return performance.now() - begun; })()",
    );
    println!("shown after {shown:?}; drawn in {drawn} ms");
    assert!(drawn.as_f64().unwrap() < 1500.0, "{drawn} ms for one picture");
    browser.key("m");
    browser.key("n");
    assert!(browser.text("#cell").starts_with("rack2 → "), "{}", browser.text("#cell"));
    assert!(!browser.text("#cell").contains(" 0 lost"), "{}", browser.text("#cell"));
    browser.key("Enter");
    browser.until("document.querySelector('#inside tbody button')");
    assert!(
        browser.eval("document.querySelectorAll('*').length").as_u64().unwrap() < 6000,
        "not an element for each cell"
    );
    picture(&mut browser, "large");
}

/// Leaves a picture where that is asked for.
fn picture(browser: &mut Browser, name: &str) {
    if let Some(directory) = std::env::var_os("FERROCE_PAGE_PICTURES") {
        browser.picture(&Path::new(&directory).join(format!("{name}.webp")));
    }
}

#[test]
fn light_and_dark_are_as_people_prefer() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut network = Simulated::new(12, 3, 4);
    let board = board(&mut network, 40, 25);
    let page = serve("127.0.146.26:0", &board);
    let mut browser = Browser::start("themes", 1400, 1300);
    for theme in ["light", "dark"] {
        browser.prefer(theme);
        browser.open(&url(&page));
        browser.until("document.body && document.body.dataset.window === '40'");
        assert_eq!(browser.eval("document.documentElement.dataset.theme"), json!(theme));
        browser.click("#findings .finding");
        browser.until("document.getElementById('inside').innerText.includes('Evidence')");
        browser.click("#inside tbody button");
        browser.until("document.querySelector('#inside .path')");
        let low = browser.eval(CONTRAST);
        assert_eq!(low, json!([]), "text that is hard to read in {theme}");
        browser.eval("window.scrollTo(0, 0)");
        picture(&mut browser, theme);
    }
}

/// Texts whose contrast with what is behind them is less than 4.5 to 1.
const CONTRAST: &str = "(() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (it) => {
    for (let at = it; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = [];
  for (const it of document.querySelectorAll('body *')) {
    const has_text = [...it.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const is_apart = it.closest('svg, dialog, .hidden, .skip, :disabled, .finding.over');
    if (!has_text || !it.checkVisibility() || is_apart) continue;
    const [one, other] = [light(getComputedStyle(it).color), light(behind(it))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) low.push(`${it.tagName}.${it.className} ${contrast.toFixed(2)}: ${it.textContent}`);
  }
  return low;
})()";
