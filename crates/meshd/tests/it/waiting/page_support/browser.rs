//! A real browser without a screen, steered over the pipes that it takes for that.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ferroce_verbs::time::{now, park};
use serde_json::{Value, json};

use super::{LIMIT, wait_for};

/// The browser, with one page; it ends with this.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    next: u64,
    directory: PathBuf,
    /// What the page complained about: errors of scripts, and what the policy forbade.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts it with a window of this size.
    pub fn start(name: &str, width: u32, height: u32) -> Self {
        let directory = std::env::temp_dir().join(format!("ferroce-browser-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let log = File::create(directory.join("log")).unwrap();
        // It reads orders from descriptor 3 and answers on 4, each with a zero at its end.
        let line = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
        let mut child = Command::new("sh")
            .args([
                "-c",
                line,
                "sh",
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-extensions",
                "--mute-audio",
            ])
            .args(["--remote-debugging-pipe", "--force-device-scale-factor=1"])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", directory.join("profile").display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let (tell, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|bytes| bytes > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if tell.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser =
            Self { child, to, from, session: String::new(), next: 1, directory, complaints: Vec::new() };
        let target = browser.order("Target.createTarget", json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().unwrap().to_owned();
        let attached = browser.order("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.order(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.order("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// An order, and its answer.
    pub fn order(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let log = self.directory.join("log");
        let said = || fs::read_to_string(&log).unwrap_or_default();
        self.to.write_all(&bytes).unwrap_or_else(|error| panic!("{method}: {error}\n{}", said()));
        let end = now() + LIMIT;
        loop {
            match self.from.try_recv() {
                Ok(answer) if answer["id"] == json!(id) => {
                    assert!(answer["error"].is_null(), "{method}: {answer}");
                    return answer["result"].clone();
                }
                Ok(event) => self.note(&event),
                Err(_) => {
                    assert!(now() < end, "{method} is not answered after {LIMIT:?}\n{}", said());
                    park(Some(Duration::from_millis(2)));
                }
            }
        }
    }

    fn note(&mut self, event: &Value) {
        let entry = &event["params"]["entry"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(event["params"].to_string()),
            // That an analyzer is away is to be seen on the page; it is no mistake of the page.
            Some("Log.entryAdded") if entry["level"] == "error" && entry["source"] != "network" => {
                self.complaints.push(entry.to_string());
            }
            _ => {}
        }
    }

    pub fn open(&mut self, url: &str) {
        self.order("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression.
    pub fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.order("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, and says what the page shows if it never is.
    pub fn until(&mut self, expression: &str) {
        let seen = std::cell::RefCell::new(String::new());
        wait_for(
            || format!("{expression}\nThe page has: {}", seen.borrow()),
            || {
                // What is not there yet is no error.
                let asked = format!(
                    "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
                );
                let is_so = self.eval(&asked) == json!(true);
                if !is_so {
                    *seen.borrow_mut() =
                        self.eval("document.body ? document.body.innerText : ''").to_string();
                }
                is_so.then_some(())
            },
        );
    }

    /// The text of the first element that a selector finds.
    pub fn text(&mut self, selector: &str) -> String {
        let quoted = json!(selector);
        self.eval(&format!("document.querySelector({quoted}).innerText")).as_str().unwrap().to_owned()
    }

    /// Presses and releases the mouse in the middle of an element.
    pub fn click(&mut self, selector: &str) {
        let quoted = json!(selector);
        let middle = self.eval(&format!(
            "(() => {{ const it = document.querySelector({quoted}); it.scrollIntoView({{ block: 'center' }});
               const box = it.getBoundingClientRect();
               return [box.left + box.width / 2, box.top + box.height / 2]; }})()"
        ));
        self.click_at(middle[0].as_f64().unwrap(), middle[1].as_f64().unwrap());
    }

    /// Clicks until this is so, every five seconds once more: what is drawn anew between pressing and releasing takes no click.
    pub fn click_until(&mut self, selector: &str, expression: &str) {
        let mut clicked = None;
        let asked =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        wait_for(
            || format!("{expression}, after clicks on {selector}"),
            || {
                if self.eval(&asked) == json!(true) {
                    return Some(());
                }
                if clicked.is_none_or(|at| now() - at > Duration::from_secs(5)) {
                    self.click(selector);
                    clicked = Some(now());
                }
                None
            },
        );
    }

    pub fn click_at(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.order("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses and releases a key.
    pub fn key(&mut self, key: &str) {
        let text = (key.chars().count() == 1).then_some(key).or((key == "Enter").then_some("\r"));
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key });
            if let Some(text) = text.filter(|_| kind == "keyDown") {
                event["text"] = json!(text);
            }
            if let Some(code) = [("Enter", 13), ("Escape", 27)].iter().find(|(name, _)| *name == key) {
                event["windowsVirtualKeyCode"] = json!(code.1);
            }
            self.order("Input.dispatchKeyEvent", event);
        }
    }

    /// Light or dark, as the system of a person would ask for.
    pub fn prefer(&mut self, theme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.order("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// What the page looks like, as a WebP.
    pub fn picture(&mut self, to: &Path) {
        let shot = self.order("Page.captureScreenshot", json!({ "format": "webp", "quality": 80 }));
        fs::write(to, decode(shot["data"].as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its own children may still write for a moment.
        for _ in 0..50 {
            if fs::remove_dir_all(&self.directory).is_ok() {
                break;
            }
            park(Some(Duration::from_millis(20)));
        }
    }
}

/// Base64 as bytes.
fn decode(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').map(value).collect();
    let bytes = |four: &[u8]| {
        let bits = four.iter().fold(0_u32, |bits, six| bits << 6 | u32::from(*six)) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    letters.chunks(4).flat_map(bytes).collect()
}
