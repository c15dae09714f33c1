//! `rping`: the client shows the server a buffer with text, the server reads it, the client shows it another, and
//! the server writes the text there. Each step is announced by a message of sixteen bytes: address, key and length.

use ferroce_verbs::cm::{Disconnected, Listener};
use ferroce_verbs::{RemoteRegion, Rkey, Service};

use super::{PORT, Side, accept, connect, ended, far_address, finish, start};
use crate::Result;
use crate::lab::Lab;
use crate::pair::Asks;

/// Bytes of an announcement.
const NOTE: usize = 16;

/// Where things are in our memory: the announcement that came, our text, and the text that came.
const NOTES: usize = 0;
const TEXT: usize = 4096;
const ECHO: usize = 8192;

/// Rounds of a game.
const ROUNDS: u32 = 10;

/// Where the guest keeps the number of a process that is to be killed.
const PID_FILE: &str = "/tmp/rping.pid";

/// Bytes of the text.
const LEN: usize = 1000;

pub(crate) fn rping(lab: &mut Lab, asks: Asks) -> Result<()> {
    match asks {
        Asks::We => {
            let server =
                start(lab, &format!("rping -s -a {} -p {PORT} -S {LEN} -v", far_address(lab.family)))?;
            let side = Side::new(lab, Service::Rc)?;
            let link = connect(lab, &side)?;
            play(&side, ROUNDS)?;
            link.disconnect();
            ended(&link, &[Disconnected::Here])?;
            let output = finish(server)?;
            let pings = output.matches("server ping data: ").count();
            if pings == ROUNDS as usize { Ok(()) } else { Err(format!("{pings} pings: {output}").into()) }
        }
        Asks::Kernel => {
            let listener = Listener::bind(&lab.context, PORT, 4)?;
            let near = lab.family.near();
            // It compares what comes back with what it sent.
            let client = start(lab, &format!("rping -c -a {near} -p {PORT} -C {ROUNDS} -S {LEN} -V -v"))?;
            let side = Side::new(lab, Service::Rc)?;
            side.receive(NOTES, NOTE)?;
            let link = accept(&listener, &side)?;
            for _ in 0..ROUNDS {
                serve(&side)?;
            }
            ended(&link, &[Disconnected::Peer])?;
            let output = finish(client)?;
            let pings = output.matches("ping data: ").count();
            if pings == ROUNDS as usize { Ok(()) } else { Err(format!("{pings} pings: {output}").into()) }
        }
    }
}

/// One of the two goes without a word, in the middle of a game.
pub(crate) fn killed(lab: &mut Lab, asks: Asks) -> Result<()> {
    match asks {
        Asks::We => {
            let server = start(lab, &format!("rping -s -a {} -p {PORT} -S {LEN}", far_address(lab.family)))?;
            let side = Side::new(lab, Service::Rc)?;
            let link = connect(lab, &side)?;
            play(&side, 1)?;
            drop((link, side));
            finish(server).map(drop)
        }
        Asks::Kernel => {
            let listener = Listener::bind(&lab.context, PORT, 4)?;
            let near = lab.family.near();
            let endless = format!("rping -c -a {near} -p {PORT} -S {LEN}");
            let client = start(lab, &format!("sh -c '{endless} & echo $! > {PID_FILE}; wait; true'"))?;
            let side = Side::new(lab, Service::Rc)?;
            side.receive(NOTES, NOTE)?;
            let link = accept(&listener, &side)?;
            // Not by the clock: how far a program gets in a given time depends on how fast the guest is.
            for _ in 0..ROUNDS {
                serve(&side)?;
            }
            lab.far()?.run(&format!("kill -KILL $(cat {PID_FILE})"))?;
            while serve(&side).is_ok() {}
            ended(&link, &[Disconnected::Peer])?;
            finish(client).map(drop)
        }
    }
}

/// As the client.
fn play(side: &Side, rounds: u32) -> Result<()> {
    for round in 0..rounds {
        let text: Vec<u8> = (b'a'..=b'z').cycle().skip(round as usize).take(LEN - 1).chain([0]).collect();
        side.region.write_at(TEXT, &text)?;
        for place in [TEXT, ECHO] {
            side.receive(NOTES, NOTE)?;
            announce(side, place)?;
            let go_on = side.received()?;
            if go_on.byte_len as usize != NOTE {
                return Err(format!("{} bytes instead of an announcement", go_on.byte_len).into());
            }
        }
        if side.region.to_vec(ECHO..ECHO + LEN)? != text {
            return Err(format!("in round {round} something else came back").into());
        }
    }
    Ok(())
}

/// As the server, one round.
fn serve(side: &Side) -> Result<()> {
    let shown = announced(side)?;
    let len = usize::try_from(shown.length)?;
    side.qp.read(side.region.slice(TEXT..TEXT + len), shown.slice(..)).post()?;
    side.sent()?;
    side.receive(NOTES, NOTE)?;
    announce(side, TEXT)?;
    let wanted = announced(side)?;
    side.qp.write(side.region.slice(TEXT..TEXT + len), wanted.slice(..shown.length)).post()?;
    side.sent()?;
    side.receive(NOTES, NOTE)?;
    announce(side, TEXT)
}

/// Says where something is.
fn announce(side: &Side, place: usize) -> Result<()> {
    let RemoteRegion { address, rkey, .. } = side.region.remote();
    let mut note = [0; NOTE];
    note[..8].copy_from_slice(&(address + place as u64).to_be_bytes());
    note[8..12].copy_from_slice(&rkey.0.to_be_bytes());
    note[12..].copy_from_slice(&u32::try_from(LEN)?.to_be_bytes());
    side.qp.send_inline(&note).post()?;
    side.sent()
}

/// What the peer says.
fn announced(side: &Side) -> Result<RemoteRegion> {
    side.received()?;
    let note = side.region.to_vec(NOTES..NOTES + NOTE)?;
    let word = |at: usize| note[at..at + 4].iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
    let address = u64::from(word(0)) << 32 | u64::from(word(4));
    let length = u64::from(word(12));
    if length > (ECHO - TEXT) as u64 {
        return Err(format!("{length} bytes are too many").into());
    }
    Ok(RemoteRegion { address, length, rkey: Rkey(word(8)) })
}
