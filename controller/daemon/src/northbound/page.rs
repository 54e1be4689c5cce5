//! The web page: the fabric with what each link carries, findings, jobs, what the plan is worth,
//! events, and changes of policy.
//!
//! Files of `page/`, as they are in the tree: no build step, nothing from elsewhere. The decision:
//! the page has the endpoints of everybody and no others, so whatever it shows or does, `curl` can
//! do; and it changes something for those alone whose token may write.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// What a browser may do for this page: load its own files and ask its own controller.
const RULES: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
struct PageFile {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// One of the files in `page/`.
macro_rules! file {
    ($path:literal, $name:literal, $kind:literal) => {
        PageFile { path: $path, kind: $kind, text: include_str!(concat!("page/", $name)) }
    };
}

const FILES: [PageFile; 14] = [
    file!("/", "index.html", "text/html; charset=utf-8"),
    file!("/page/style.css", "style.css", "text/css; charset=utf-8"),
    file!("/page/main.js", "main.js", "text/javascript; charset=utf-8"),
    file!("/page/chart.js", "chart.js", "text/javascript; charset=utf-8"),
    file!("/page/controller.js", "controller.js", "text/javascript; charset=utf-8"),
    file!("/page/elements.js", "elements.js", "text/javascript; charset=utf-8"),
    file!("/page/fabric.js", "fabric.js", "text/javascript; charset=utf-8"),
    file!("/page/frames.js", "frames.js", "text/javascript; charset=utf-8"),
    file!("/page/graph.js", "graph.js", "text/javascript; charset=utf-8"),
    file!("/page/heat.js", "heat.js", "text/javascript; charset=utf-8"),
    file!("/page/panels.js", "panels.js", "text/javascript; charset=utf-8"),
    file!("/page/policy.js", "policy.js", "text/javascript; charset=utf-8"),
    file!("/page/search.js", "search.js", "text/javascript; charset=utf-8"),
    file!("/page/surface.js", "surface.js", "text/javascript; charset=utf-8"),
];

/// Its files, each at its path.
pub(super) fn page_router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(async move |asked: HeaderMap| serve_file(file, &asked)))
    })
}

/// Whether a file of the page is at this path.
pub(super) fn is_file(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

/// Serves a file, or 304 if the browser has it. `no-cache` makes browsers revalidate every time,
/// since a controller of another version may run at the same address later.
fn serve_file(file: &PageFile, asked: &HeaderMap) -> Response {
    let tag = format!("\"{}-{:x}\"", env!("CARGO_PKG_VERSION"), content_hash(file.text));
    let has = asked.get(header::IF_NONE_MATCH);
    let headers = [
        (header::CONTENT_TYPE, file.kind),
        (header::CONTENT_SECURITY_POLICY, RULES),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, &tag),
    ];
    if has.is_some_and(|has| has.as_bytes() == tag.as_bytes()) {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        (headers, file.text).into_response()
    }
}

/// A hash that changes with the text (FNV-1a).
fn content_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
