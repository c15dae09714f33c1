//! Every example runs and ends well.
#![expect(unreachable_pub, reason = "an example's main is public so that it can be called from here")]

#[path = "../examples/completion_events.rs"]
mod completion_events;
#[path = "../examples/endpoint_messages.rs"]
mod endpoint_messages;
#[path = "../examples/fetch_add_counter.rs"]
mod fetch_add_counter;
#[path = "../examples/hyper_echo.rs"]
mod hyper_echo;
#[path = "../examples/rc_ping_pong.rs"]
mod rc_ping_pong;
#[path = "../examples/shared_receive_queue.rs"]
mod shared_receive_queue;
#[path = "../examples/ud_datagrams.rs"]
mod ud_datagrams;

#[test]
fn rc_ping_pong_runs() {
    rc_ping_pong::main().unwrap();
}

#[test]
fn ud_datagrams_runs() {
    ud_datagrams::main().unwrap();
}

#[test]
fn shared_receive_queue_runs() {
    shared_receive_queue::main().unwrap();
}

#[test]
fn completion_events_runs() {
    completion_events::main().unwrap();
}

#[test]
fn fetch_add_counter_runs() {
    fetch_add_counter::main().unwrap();
}

#[test]
fn endpoint_messages_runs() {
    endpoint_messages::main().unwrap();
}

#[test]
fn hyper_echo_runs() {
    hyper_echo::main().unwrap();
}
