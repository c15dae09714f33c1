//! Scenes between two endpoints. The first message of a connection names the scene.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::thread;

use ferroce_endpoint::{Access, ConnectError, Connection, Listener};

use crate::{Result, SOON, ensure};

/// What both ends play.
struct Scene {
    name: &'static str,
    visitor: fn(Connection) -> Result<()>,
    listener: fn(Connection) -> Result<()>,
}

const SCENES: &[Scene] = &[
    Scene { name: "messages", visitor: asks, listener: echoes },
    Scene { name: "both-ways", visitor: talks, listener: talks },
    Scene { name: "stream", visitor: pours, listener: pours_back },
    Scene { name: "memory", visitor: reaches, listener: opens },
    Scene { name: "gone", visitor: vanishes, listener: notices },
];

/// The word that ends the listener.
const END: &str = "end";

pub(crate) fn listen(address: SocketAddr) -> Result<()> {
    let listener = Listener::bind(address)?;
    println!("listens");
    while serve(&listener)? {}
    Ok(())
}

pub(crate) fn visit(address: SocketAddr) -> Result<()> {
    for scene in SCENES {
        let named = |error: Box<dyn std::error::Error + Send + Sync>| format!("{}: {error}", scene.name);
        let connection = Connection::connect(address).wait().map_err(|error| named(error.into()))?;
        connection.send(scene.name.as_bytes()).wait_for(SOON).map_err(|error| named(error.into()))?;
        (scene.visitor)(connection).map_err(named)?;
        println!("{} ok", scene.name);
    }
    let unheard = SocketAddr::new(address.ip(), address.port() + 1);
    let refused = Connection::connect(unheard).wait().err();
    ensure(matches!(refused, Some(ConnectError::Refused { .. } | ConnectError::Cm(_))), || {
        format!("a port without a listener: {refused:?}")
    })?;
    println!("no-listener ok");
    let connection = Connection::connect(address).wait()?;
    connection.send(END.as_bytes()).wait_for(SOON)?;
    connection.shutdown().wait_for(SOON)?;
    Ok(())
}

pub(crate) fn alone(address: SocketAddr) -> Result<()> {
    let listener = Listener::bind(address)?;
    thread::scope(|scope| {
        let serving = scope.spawn(|| -> Result<()> {
            while serve(&listener)? {}
            Ok(())
        });
        let visited = visit(address);
        if visited.is_err() {
            // It would wait for another visitor.
            listener.close();
        }
        let served = serving.join().map_err(|_| "the listener panicked")?;
        visited.and(served)
    })
}

/// Plays one scene; whether there may be more.
fn serve(listener: &Listener) -> Result<bool> {
    let connection = listener.accept().wait_for(SOON)?;
    let first = connection.recv().wait_for(SOON)?.ok_or("a visitor that says nothing")?.into_vec();
    if first == END.as_bytes() {
        return Ok(false);
    }
    let scene = SCENES.iter().find(|scene| scene.name.as_bytes() == first);
    let scene = scene.ok_or_else(|| format!("no scene is called {}", first.escape_ascii()))?;
    (scene.listener)(connection).map_err(|error| format!("listener of {}: {error}", scene.name))?;
    println!("listener of {} ok", scene.name);
    Ok(true)
}

/// Bytes that differ everywhere.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap_or(0)).collect()
}

fn asks(connection: Connection) -> Result<()> {
    for (seed, len) in [0, 1, 100, 4096, 20_000, 500_000].into_iter().enumerate() {
        let message = bytes(len, seed);
        connection.send(&message).wait_for(SOON)?;
        let answer = connection.recv().wait_for(SOON)?.ok_or("no answer")?.into_vec();
        ensure(answer == message, || format!("another answer to {len} bytes, of {}", answer.len()))?;
    }
    connection.shutdown().wait_for(SOON)?;
    ensure(connection.recv().wait_for(SOON)?.is_none(), || "more than was asked for".to_owned())
}

fn echoes(connection: Connection) -> Result<()> {
    while let Some(message) = connection.recv().wait_for(SOON)? {
        connection.send(&message.into_vec()).wait_for(SOON)?;
    }
    Ok(connection.shutdown().wait_for(SOON)?)
}

/// Both ends send and receive at once.
fn talks(connection: Connection) -> Result<()> {
    const MESSAGES: u32 = 300;
    thread::scope(|scope| {
        let sending = scope.spawn(|| -> Result<()> {
            for number in 0..MESSAGES {
                connection.send(&number.to_le_bytes()).wait_for(SOON)?;
            }
            Ok(())
        });
        for number in 0..MESSAGES {
            let got = connection.recv().wait_for(SOON)?.ok_or("too few messages")?.into_vec();
            ensure(got == number.to_le_bytes(), || format!("{got:?} instead of {number}"))?;
        }
        sending.join().map_err(|_| "the sender panicked")?
    })?;
    connection.shutdown().wait_for(SOON)?;
    ensure(connection.recv().wait_for(SOON)?.is_none(), || "too many messages".to_owned())
}

const POURED: usize = 300_000;

fn pours(connection: Connection) -> Result<()> {
    let mut stream = connection.into_stream();
    let all = bytes(POURED, 3);
    stream.write_all(&all)?;
    stream.flush()?;
    let mut back = vec![0; POURED];
    stream.read_exact(&mut back)?;
    back.reverse();
    ensure(back == all, || "the stream came back changed".to_owned())
}

fn pours_back(connection: Connection) -> Result<()> {
    let mut stream = connection.into_stream();
    let mut all = vec![0; POURED];
    stream.read_exact(&mut all)?;
    all.reverse();
    stream.write_all(&all)?;
    stream.flush()?;
    // The visitor has all of it when it hangs up.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    ensure(rest.is_empty(), || format!("{} bytes more", rest.len()))
}

/// The name of the listener's memory, and the number in it that is added to.
const DESK: &str = "desk";
const FIRST: u64 = 40;

fn opens(connection: Connection) -> Result<()> {
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let desk = connection.expose(DESK, vec![0; 64 << 10], access).wait_for(SOON)?;
    desk.store_u64(0, FIRST)?;
    connection.send(b"it is open").wait_for(SOON)?;
    connection.recv().wait_for(SOON)?.ok_or("the visitor did not say that it is done")?;
    let (number, there) = (desk.load_u64(0)?, desk.to_vec(100..10_100)?);
    ensure(number == FIRST + 7, || format!("{number} after all that was added"))?;
    ensure(there == bytes(10_000, 5), || "other bytes than were written".to_owned())?;
    Ok(connection.shutdown().wait_for(SOON)?)
}

fn reaches(connection: Connection) -> Result<()> {
    let desk = connection.remote(DESK).wait_for(SOON)?;
    connection.recv().wait_for(SOON)?.ok_or("the listener has not opened it")?;
    let written = bytes(10_000, 5);
    connection.write(&desk, 100, &written).wait_for(SOON)?;
    let read = connection.read(&desk, 100, written.len()).wait_for(SOON)?;
    ensure(read == written, || "read otherwise than written".to_owned())?;
    let before = connection.fetch_add(&desk, 0, 2).wait_for(SOON)?;
    let swapped = connection.compare_swap(&desk, 0, FIRST + 2, FIRST + 7).wait_for(SOON)?;
    ensure((before, swapped) == (FIRST, FIRST + 2), || format!("atomics saw {before} and {swapped}"))?;
    let outside = connection.write(&desk, (64 << 10) - 1, b"no").wait_for(SOON);
    ensure(outside.is_err(), || "a WRITE behind the end was taken".to_owned())?;
    connection.send(b"done").wait_for(SOON)?;
    ensure(connection.recv().wait_for(SOON)?.is_none(), || "more than was asked for".to_owned())
}

fn vanishes(connection: Connection) -> Result<()> {
    connection.recv().wait_for(SOON)?.ok_or("nothing came")?;
    connection.abort();
    Ok(())
}

fn notices(connection: Connection) -> Result<()> {
    connection.send(b"are you there?").wait_for(SOON)?;
    // In peace or not: it does not wait on.
    let end = connection.recv().wait_for(SOON);
    ensure(!matches!(end, Ok(Some(_))), || "a message of a visitor that is gone".to_owned())?;
    let waited = matches!(end, Err(ferroce_endpoint::Error::TimedOut(_)));
    ensure(!waited, || "it did not notice".to_owned())
}
