//! The files of the page, which are part of the program.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// A file, and what it is.
pub(super) struct File {
    pub(super) path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All of them.
pub(super) const FILES: &[File] = &[
    File { path: "/", kind: HTML, text: include_str!("files/index.html") },
    File { path: "/page.css", kind: CSS, text: include_str!("files/page.css") },
    File { path: "/page.js", kind: SCRIPT, text: include_str!("files/page.js") },
    File { path: "/tools.js", kind: SCRIPT, text: include_str!("files/tools.js") },
    File { path: "/matrix.js", kind: SCRIPT, text: include_str!("files/matrix.js") },
    File { path: "/clos.js", kind: SCRIPT, text: include_str!("files/clos.js") },
    File { path: "/detail.js", kind: SCRIPT, text: include_str!("files/detail.js") },
    File { path: "/lists.js", kind: SCRIPT, text: include_str!("files/lists.js") },
];

impl File {
    /// The answer with this file.
    pub(super) fn answer(&self) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        (headers, self.text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_small_and_name_no_other_place() {
        let bytes: usize = FILES.iter().map(|file| file.text.len()).sum();
        assert!(bytes < 100 << 10, "{bytes} bytes");
        for File { path, text, .. } in FILES {
            // The name of a kind of picture is no address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for never in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                "document.write",
            ] {
                assert!(!text.contains(never), "{path} has {never}");
            }
            let is_script = path.ends_with(".js");
            assert!(is_script || !text.contains("<script>"), "{path} has a script in it");
            assert!(!text.contains(" onclick=") && !text.contains(" style="), "{path}");
        }
    }
}
