//! Which requests are answered at all, and what browsers may do with the answers.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// What a page may load: its own files, and nothing else. Nothing is evaluated, and nothing frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A refusal, as JSON with its reason.
pub(super) fn refusal(status: StatusCode, reason: impl Into<String>) -> Response {
    let body = json!({ "error": { "status": status.as_u16(), "reason": reason.into() } });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Lets requests pass that are meant for this machine, read only, and have no body.
pub(super) async fn pass(request: Request, next: Next) -> Response {
    let mut response = match refuse(&request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn refuse(request: &Request) -> Option<Response> {
    if !is_for_us(request.headers()) {
        let reason = "the Host header names no loopback address: ask by localhost or 127.0.0.1";
        return Some(refusal(StatusCode::MISDIRECTED_REQUEST, reason));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused =
            refusal(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here: GET and HEAD only");
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(refused);
    }
    let has_body = request.headers().contains_key(header::TRANSFER_ENCODING)
        || request.headers().get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    has_body.then(|| refusal(StatusCode::PAYLOAD_TOO_LARGE, "requests have no body here"))
}

/// A page of a stranger may point a name of its own at this machine; then the name says so.
fn is_for_us(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    host.to_str().is_ok_and(is_loopback)
}

fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':').or(port.is_empty().then_some("0"))),
        None => host.split_once(':').map_or((host, Some("0")), |(name, port)| (name, Some(port))),
    };
    let has_port = port.is_some_and(|port| port.parse::<u16>().is_ok());
    let is_here = |address: IpAddr| {
        address.to_canonical().is_loopback() && (address.is_ipv6() == host.starts_with('['))
    };
    has_port && (name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.0.146.9", "[::1]:80", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:80",
            "[::2]:80",
            "::1",
            "[::1",
            "[::1]x",
            "127.0.0.1:port",
            "127.0.0.1:80:80",
            "[127.0.0.1]:80",
            "localhost:",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
