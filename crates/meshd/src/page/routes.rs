//! What is asked for, by path.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::files::FILES;
use super::guard::{pass, refusal};
use super::{Shared, answers, events};
use crate::board::{Board, Kept};
use crate::metrics;

/// Each path with what answers it.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new()
        .route("/api/state", get(state))
        .route("/api/window/{number}", get(window))
        .route("/api/pair", get(pair))
        .route("/api/topology", get(topology))
        .route("/api/findings", get(findings))
        .route("/events", get(events::follow))
        .route("/metrics", get(scrape))
        .route("/healthz", get(health));
    for file in FILES {
        router = router.route(file.path, get(|| async { file.answer() }));
    }
    let unknown =
        || async { refusal(StatusCode::NOT_FOUND, "there is no such page; /api/state says what there is") };
    router.fallback(unknown).layer(middleware::from_fn(pass)).with_state(shared)
}

type Page = State<Arc<Shared>>;

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn state(State(shared): Page) -> Response {
    let met = (shared.met)();
    json(answers::state(&shared.board.lock(), &met).to_string())
}

async fn window(State(shared): Page, number: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(number)) = number else { return NoWindow::Number.answer() };
    let found = {
        let board = shared.board.lock();
        find(&board, &number).map(|kept| (answers::names(&board, &kept), kept))
    };
    match found {
        Ok((names, kept)) => json(answers::window(&kept, &names)),
        Err(refused) => refused.answer(),
    }
}

/// From which ToR to which one, in which window.
#[derive(Debug)]
struct Pair {
    from: String,
    to: String,
    window: String,
}

async fn pair(State(shared): Page, asked: Result<Query<Vec<(String, String)>>, QueryRejection>) -> Response {
    let Some(Pair { from, to, window }) = asked.ok().and_then(|Query(words)| Pair::of(words)) else {
        let reason = "say from which ToR to which one: /api/pair?from=NAME&to=NAME&window=NUMBER";
        return refusal(StatusCode::BAD_REQUEST, reason);
    };
    let board = shared.board.lock();
    let kept = match find(&board, &window) {
        Ok(kept) => kept,
        Err(refused) => return refused.answer(),
    };
    let row = |name: &str| kept.record.matrix.row(board.tor(name)?);
    match (row(&from), row(&to)) {
        (Some(row), Some(column)) => {
            json(answers::pair(&board, &kept, (row, column), (&from, &to)).to_string())
        }
        _ => refusal(StatusCode::NOT_FOUND, "there is no such ToR in this window"),
    }
}

impl Pair {
    fn of(words: Vec<(String, String)>) -> Option<Self> {
        let (mut from, mut to, mut window) = (None, None, None);
        for (name, value) in words {
            let place = match name.as_str() {
                "from" => &mut from,
                "to" => &mut to,
                "window" => &mut window,
                _ => return None,
            };
            if place.replace(value).is_some() {
                return None;
            }
        }
        Some(Self { from: from?, to: to?, window: window.unwrap_or_else(|| NEWEST.to_owned()) })
    }
}

/// The window that is new at the moment.
const NEWEST: &str = "newest";

/// Why there is no such window.
#[derive(Clone, Copy, Debug)]
enum NoWindow {
    Number,
    Nothing,
    Gone { first: u64, last: u64 },
}

impl NoWindow {
    fn answer(self) -> Response {
        match self {
            Self::Number => refusal(StatusCode::BAD_REQUEST, "windows have numbers; or ask for newest"),
            Self::Nothing => refusal(StatusCode::NOT_FOUND, "no window was judged yet"),
            Self::Gone { first, last } => {
                refusal(StatusCode::NOT_FOUND, format!("there are windows {first} to {last}"))
            }
        }
    }
}

fn find(board: &Board, number: &str) -> Result<Kept, NoWindow> {
    if number == NEWEST {
        return board.newest().cloned().ok_or(NoWindow::Nothing);
    }
    let number: u64 = number.parse().map_err(|_| NoWindow::Number)?;
    let gone = || {
        let numbers = |kept: &Kept| kept.record.number;
        let ends = board.windows().next().map(numbers).zip(board.newest().map(numbers));
        ends.map_or(NoWindow::Nothing, |(first, last)| NoWindow::Gone { first, last })
    };
    board.find(number).cloned().ok_or_else(gone)
}

async fn topology(State(shared): Page) -> Response {
    let topology = Arc::clone(shared.board.lock().topology());
    json(answers::topology(&topology).to_string())
}

async fn findings(State(shared): Page) -> Response {
    json(answers::findings(&shared.board.lock()).to_string())
}

async fn scrape(State(shared): Page) -> Response {
    let met = (shared.met)();
    let families = metrics::families(&shared.board.lock(), &met);
    let text = metrics::text(&families);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn health() -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], "ok\n").into_response()
}
