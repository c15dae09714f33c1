//! Prometheus itself, which scrapes nothing: series are written to it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::waiting::page_support::{get, wait_for};

pub struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts it with its data in a directory, perhaps of another life.
    pub fn start(address: SocketAddr, directory: &Path) -> Self {
        let config = directory.join("prometheus.yml");
        fs::write(&config, "global: { evaluation_interval: 1m }\n").unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--web.enable-remote-write-receiver")
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.join("log")).unwrap());
        Self { child: command.spawn().unwrap(), address }
    }

    /// What it answers on a path, if it answers.
    fn ask(&self, path: &str) -> Option<Value> {
        TcpStream::connect(self.address).ok()?;
        let (status, body) = get(self.address, path);
        let body: Value = serde_json::from_str(&unchunked(&body)).ok()?;
        (status == 200 && body["status"] == "success").then(|| body["data"].clone())
    }

    /// The one number that a query has as its answer.
    pub fn number(&self, query: &str) -> Option<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.ask(&format!("/api/v1/query?query={encoded}"))?;
        answer["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// Waits until a query has this answer.
    pub fn expect(&self, query: &str, wanted: u64) {
        let what = || format!("{query} to be {wanted}: {:?}", self.number(query));
        #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "whole and small")]
        wait_for(what, || (self.number(query)? == wanted as f64).then_some(()));
    }

    /// The names of all labels.
    pub fn labels(&self) -> Vec<String> {
        let labels = self.ask("/api/v1/labels").unwrap();
        labels.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A body as it is, if it came in chunks.
fn unchunked(body: &str) -> String {
    if body.starts_with('{') {
        return body.to_owned();
    }
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or_default();
        if length == 0 {
            break;
        }
        whole.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    whole
}
