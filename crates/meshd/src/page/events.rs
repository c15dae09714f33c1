//! New windows, as events of the server.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::Shared;
use super::guard::refusal;

/// Events that wait for a browser. More of them say nothing new.
const WAITING: usize = 4;

/// Tells of each new window, and that we are still there.
pub(super) async fn follow(State(shared): State<Arc<Shared>>) -> Response {
    let Ok(place) = Arc::clone(&shared.followers).try_acquire_owned() else {
        let reason = "as many pages as there may be are told of new windows; close one";
        return refusal(StatusCode::SERVICE_UNAVAILABLE, reason);
    };
    let (to, from) = mpsc::channel(WAITING);
    let mut newest = shared.board.follow();
    let heartbeat = shared.config.heartbeat;
    tokio::spawn(async move {
        let _place = place;
        // The page goes on asking, soon.
        if to.send("retry: 1000\n\n".to_owned()).await.is_err() {
            return;
        }
        loop {
            let number = *newest.borrow_and_update();
            let event = format!("event: window\ndata: {}\n\n", json!({ "number": number }));
            if to.send(event).await.is_err() {
                return;
            }
            loop {
                tokio::select! {
                    changed = newest.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    () = to.closed() => return,
                    () = tokio::time::sleep(heartbeat) => {
                        if to.send("event: alive\ndata: {}\n\n".to_owned()).await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
    });
    let body = Body::from_stream(ReceiverStream::new(from).map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
