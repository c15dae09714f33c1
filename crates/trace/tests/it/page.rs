//! The page in a real browser: it opens a hundred thousand packets, and a click shows what a packet says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use ferroce_record::{Event, PacketFlags};
use ferroce_testkit::judge;
use ferroce_trace::export::{HtmlOptions, Selection, html};
use serde_json::json;

use crate::chromium::Browser;
use crate::made::{Made, five_operations};

fn page(made: &mut Made, ends: usize, options: &HtmlOptions) -> (String, ferroce_trace::export::Summary) {
    let timeline = made.timeline(ends);
    let path = made.directory().join("page.html");
    let mut out = BufWriter::new(File::create(&path).unwrap());
    let summary = html(&timeline, options, &mut out, &mut |_| {}).unwrap();
    (format!("file://{}", path.display()), summary)
}

#[test]
fn a_click_on_an_arrow_shows_its_headers() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut made = Made::new("page", false);
    made.traffic(400_000, 3);
    let options = HtmlOptions { title: "client & <server>".to_owned(), ..HtmlOptions::default() };
    let (url, summary) = page(&mut made, 2, &options);
    assert!(summary.packets - summary.joined > 100_000, "{summary:?}");

    let mut browser = Browser::start("trace", 1400, 900);
    browser.open(&url);
    browser.until("document.body.dataset.ready === 'yes'");
    assert_eq!(browser.text("#title"), "client & <server>");
    assert_eq!(browser.eval("page.count"), json!(summary.packets - summary.joined));

    // What the record says of the fifth packet that left.
    let timeline = made.timeline(2);
    let mut sent = timeline.events().filter_map(|seen| match seen.stamped.event {
        Event::Packet(packet)
            if packet.flags.contains(PacketFlags::OUT) && !packet.flags.intersects(PacketFlags::FATE) =>
        {
            Some(packet)
        }
        _ => None,
    });
    let packet = sent.nth(4).unwrap();
    let [a, b, c] = *packet.headers[9..].first_chunk().unwrap();
    let middle = browser.eval("page.middle(4)");
    browser.click_at(middle[0].as_f64().unwrap(), middle[1].as_f64().unwrap());
    browser.until("document.querySelector('#details [data-field=psn]')");
    assert_eq!(browser.text("#details [data-field=psn]"), format!("0x{a:02x}{b:02x}{c:02x}"));
    assert_eq!(browser.text("#details [data-field=work_number]"), format!("send {}", packet.work));

    // The keyboard goes on from there; a search finds work by its id.
    browser.eval("document.getElementById('diagram').focus()");
    browser.key("ArrowDown");
    assert_eq!(browser.eval("page.state.arrow"), json!(5));
    browser.key("/");
    browser.eval("document.getElementById('query').value = '0x1003'");
    browser.key("Enter");
    assert_eq!(browser.text("#details [data-field=work_id]"), "0x1003");
    assert!(browser.text("#found").starts_with("1 of "));

    // Everything at once is drawn in a moment, too.
    browser.eval("document.getElementById('all').click()");
    browser.eval("page.frame()");
    let drawn = browser.eval("page.view.drawn + page.view.bars").as_u64().unwrap();
    assert!(drawn < 30_000, "{drawn} of 145,000 arrows and bars: what lies on others is left out");
    // The quickest of some: other tests run beside this one.
    let took = browser.eval(
        "Math.min(...Array.from({ length: 8 }, () => {
           const begin = performance.now(); page.frame(); return performance.now() - begin; }))",
    );
    assert!(took.as_f64().unwrap() < 200.0, "a frame took {took} ms");
    picture(&mut browser, "all");
    browser.prefer("dark");
    browser.until("document.documentElement.dataset.theme === 'dark'");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn the_page_reads_headers_as_the_device_does() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut made = Made::new("page-headers", true);
    made.traffic(1_500, 1);
    let (url, summary) = page(&mut made, 1, &HtmlOptions::default());
    assert_eq!(summary.joined, 0);
    let mut browser = Browser::start("headers", 1000, 700);
    browser.open(&url);
    browser.until("document.body.dataset.ready === 'yes'");
    let read = browser.eval(
        "Array.from({ length: page.count }, (_, arrow) => page.decode(arrow).flatMap(({ key, fields }) =>
           fields.map(([name, , text]) => [`${key}.${name}`, text])))",
    );
    let timeline = made.timeline(1);
    let packets = timeline.events().filter_map(|seen| match seen.stamped.event {
        Event::Packet(packet) if !packet.flags.intersects(PacketFlags::FATE) => {
            Some((seen.stamped.time, packet))
        }
        _ => None,
    });
    let mut compared = 0;
    let mut opcodes = std::collections::BTreeSet::new();
    for (fields, (_, packet)) in read.as_array().unwrap().iter().zip(packets) {
        let wire = usize::from(packet.headers_len) + usize::from(packet.payload).next_multiple_of(4) + 4;
        let parsed = ferroce_wire::Packet::parse_kept(packet.headers(), wire).unwrap();
        let ours = described(&parsed);
        for pair in fields.as_array().unwrap() {
            let (name, text) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            assert_eq!(ours.get(name).map(String::as_str), Some(text), "{name} of {parsed}");
            compared += 1;
        }
        opcodes.insert(packet.headers[0]);
    }
    assert!(compared > 5_000 && opcodes.len() >= 12, "{compared} fields of {opcodes:?}");
    assert_eq!(browser.complaints, [""; 0]);
}

/// What our own description of a packet says, field by field.
fn described(packet: &impl ferroce_wire::describe::Describe) -> BTreeMap<String, String> {
    struct Fields(&'static str, BTreeMap<String, String>);
    impl ferroce_wire::describe::Visitor for Fields {
        fn header(&mut self, key: &'static str, _: &'static str, _: usize) -> std::fmt::Result {
            self.0 = key;
            Ok(())
        }
        fn field(
            &mut self,
            key: &'static str,
            _: &'static str,
            value: ferroce_wire::describe::Value<'_>,
        ) -> std::fmt::Result {
            self.1.insert(format!("{}.{key}", self.0), value.to_string());
            Ok(())
        }
        fn data(&mut self, _: usize, _: &[u8]) -> std::fmt::Result {
            Ok(())
        }
    }
    let mut fields = Fields("", BTreeMap::new());
    packet.describe(&mut fields).unwrap();
    fields.1
}

#[test]
fn a_page_that_is_full_says_so_and_an_empty_one_too() {
    if !judge::is_here("chromium") {
        return;
    }
    let mut made = Made::new("page-full", false);
    made.traffic(2_000, 1);
    let (url, summary) = page(&mut made, 2, &HtmlOptions { packets: 100, ..HtmlOptions::default() });
    assert!(summary.left_out > 500, "{summary:?}");
    let mut browser = Browser::start("full", 900, 700);
    browser.open(&url);
    browser.until("document.body.dataset.ready === 'yes'");
    assert_eq!(browser.eval("page.count"), json!(100));
    let note = browser.text("#note").replace('\u{202f}', "");
    assert!(note.contains(&format!("{} packets are not in this page", summary.left_out)), "{note}");

    // Five operations, as the manual shows them.
    let mut five = five_operations("page-five");
    let title = "client to server: five operations".to_owned();
    let (url, _) = page(&mut five, 2, &HtmlOptions { title, ..HtmlOptions::default() });
    let size = json!({ "width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    browser.order("Emulation.setDeviceMetricsOverride", size);
    browser.open(&url);
    browser.until("document.body.dataset.ready === 'yes' && page.count === 16");
    for theme in ["light", "dark"] {
        browser.prefer(theme);
        browser.until(&format!("document.documentElement.dataset.theme === '{theme}'"));
        browser.eval("page.selectArrow(1, false)");
        assert_eq!(browser.text("#details .tag"), "taken by fault injection");
        browser.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
        picture(&mut browser, &format!("trace-{theme}"));
    }

    let selection = Selection { from: Some(u64::MAX), ..Selection::default() };
    let (url, summary) = page(&mut made, 2, &HtmlOptions { selection, ..HtmlOptions::default() });
    assert_eq!(summary.packets, 0);
    browser.open(&url);
    browser.until("document.body.dataset.ready === 'yes' && page.count === 0");
    assert_eq!(browser.eval("document.getElementById('empty').hidden"), json!(false));
    assert_eq!(browser.complaints, [""; 0]);
}

/// A picture for people, if they asked for one with `FERROCE_PAGE_PICTURES`.
fn picture(browser: &mut Browser, name: &str) {
    if let Some(directory) = std::env::var_os("FERROCE_PAGE_PICTURES") {
        browser.picture(&Path::new(&directory).join(format!("{name}.webp")));
    }
}
