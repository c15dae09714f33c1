//! Programs of ours in the guest, with the loader and the libraries of this machine: those of the guest may be older.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::Result;
use crate::far::Far;
use crate::lab::Family;

/// Where it lies in the guest.
const FOLDER: &str = "/opt/ferroce";

/// Seconds after which a file that does not arrive never will.
const PATIENCE: u32 = 60;

/// Puts a program there, so that this name starts it.
pub(crate) fn bring(guest: IpAddr, program: &Path, name_there: &str) -> Result<()> {
    let mut far = Far::connect(guest)?;
    let (loader, libraries) = needs(program)?;
    far.run(&format!("mkdir -p {FOLDER}"))?;
    for file in libraries.iter().chain([&loader]) {
        send(&mut far, &fs::read(file)?, name(file)?)?;
    }
    send(&mut far, &stripped(program)?, name_there)?;
    // Programs that start themselves again find this script, and not a program that needs the libraries of the guest.
    let start = format!(
        "exec {FOLDER}/{} --argv0 /usr/bin/{name_there} --library-path {FOLDER} {FOLDER}/{name_there}",
        name(&loader)?
    );
    far.run(&format!(
        "printf '%s\\n' '#!/bin/sh' '{start} \"$@\"' >/usr/bin/{name_there} && \
         chmod 755 /usr/bin/{name_there} {FOLDER} {FOLDER}/* && {{ {name_there} --version || {name_there} --list; }} 2>&1"
    ))?;
    Ok(())
}

/// Without what only debuggers read, which is most of it.
fn stripped(program: &Path) -> Result<Vec<u8>> {
    let file = std::env::temp_dir().join(format!("ferroce-interop-{}-stripped", std::process::id()));
    let done = Command::new("strip").arg("-o").arg(&file).arg(program).output()?;
    let bytes = fs::read(&file);
    // If it was not made, there is nothing to take away.
    let _ = fs::remove_file(&file);
    match bytes {
        Ok(bytes) if done.status.success() => Ok(bytes),
        _ => Err(format!("strip: {}", String::from_utf8_lossy(&done.stderr).trim()).into()),
    }
}

/// The loader and the libraries of a program.
fn needs(program: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
    let output = Command::new("ldd").arg(program).output()?;
    needs_of(&String::from_utf8_lossy(&output.stdout))
}

/// Lines such as `libc.so.6 => /lib/libc.so.6 (0x7f)` and `/lib64/ld.so (0x7f)`.
fn needs_of(text: &str) -> Result<(PathBuf, Vec<PathBuf>)> {
    let (mut loader, mut libraries) = (None, Vec::new());
    for line in text.lines().map(str::trim) {
        match line.split_once(" => ") {
            Some((_, rest)) if rest.starts_with('/') => {
                libraries.extend(rest.split(" (").next().map(PathBuf::from));
            }
            Some((name, _)) => return Err(format!("this machine has no {name}").into()),
            None if line.starts_with('/') => loader = line.split(" (").next().map(PathBuf::from),
            None => {}
        }
    }
    Ok((loader.ok_or_else(|| format!("no loader in {text:?}"))?, libraries))
}

fn name(file: &Path) -> Result<&str> {
    let name = file.file_name().and_then(|name| name.to_str());
    Ok(name.ok_or_else(|| format!("{} has no name", file.display()))?)
}

/// Sends a file into the folder: the guest fetches it.
fn send(far: &mut Far, bytes: &[u8], name: &str) -> Result<()> {
    let listener = TcpListener::bind((Family::V4.near(), 0))?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let server =
            scope.spawn(move || listener.accept().and_then(|(mut stream, _)| stream.write_all(bytes)));
        let line = format!("timeout {PATIENCE} nc {} {} >{FOLDER}/{name}", address.ip(), address.port());
        let fetched = far.run(&line);
        if fetched.is_err() {
            // It may still wait for the guest.
            drop(TcpStream::connect(address));
        }
        let sent = server.join().map_err(|_| "the server gave up")?;
        fetched?;
        Ok(sent?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_and_libraries_are_told_apart() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x7f)\n\t/lib64/ld.so (0x7f)\n";
        assert_eq!(needs_of(text).unwrap(), ("/lib64/ld.so".into(), vec!["/lib/libm.so.6".into()]));
        assert!(needs_of("\tlibz.so => not found\n").unwrap_err().to_string().contains("libz.so"));
        assert!(needs_of("\tstatically linked\n").is_err());
    }
}
