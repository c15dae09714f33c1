//! Messages of any size between two ends, and memory of one that the other writes: no RDMA knowledge needed.
//!
//! Run it with `cargo run -p ferroce --example endpoint_messages`.

use std::error::Error;
use std::thread;

use ferroce::Access;
use ferroce::endpoint::{Connection, Listener};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ADDRESS: &str = "127.0.0.81:7471";

fn serve(listener: &Listener) -> Result<()> {
    let connection = listener.accept().wait()?;
    let board = connection.expose("board", vec![b'.'; 32], Access::REMOTE_WRITE).wait()?;
    while let Some(message) = connection.recv().wait()? {
        println!("server: a message of {} bytes, number {:?}", message.len(), message.imm());
    }
    println!("server: the board says {:?}", String::from_utf8_lossy(&board.to_vec(..)?));
    assert_eq!(board.to_vec(4..14)?, b"was it me?");
    Ok(connection.close().wait()?)
}

/// Runs both ends in this process.
pub fn main() -> Result<()> {
    let listener = Listener::bind(ADDRESS)?;
    let server = thread::spawn(move || serve(&listener));
    let connection = Connection::connect(ADDRESS).wait()?;
    connection.send(b"short").wait()?;
    connection.send_with_imm(&vec![0; 20 << 20], 7).wait()?;
    let board = connection.remote("board").wait()?;
    connection.write(&board, 4, b"was it me?").wait()?;
    connection.close().wait()?;
    server.join().map_err(|_| "the server panicked")?
}
