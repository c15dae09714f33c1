//! The order of things: for each MTU and each weather all cases, in both families and both directions.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_verbs::{Context, PathPolicy};

use crate::alone;
use crate::cases::{CASES, Case, Weather};
use crate::doctor;
use crate::far::Far;
use crate::lab::{Family, Lab, Link};
use crate::pair::Asks;
use crate::table::{Cell, Column, Table};
use crate::totals::Totals;
use crate::{Args, Result};

/// Our device, named by its interface in the namespace.
pub(crate) const BRIDGE: &str = "br0";
/// Our device while other programs have the addresses of the interface.
const LOOPBACK: &str = "ferroce_lo";
/// What leads from there to the guest.
pub(crate) const TAP: &str = "tap1";

/// Runs all cases that are wanted.
pub(crate) fn run(args: &Args) -> Result<Table> {
    let mut table = Table::default();
    let mut totals = Totals::new(args.guest)?;
    for link in Link::ALL {
        if args.mtu.is_some_and(|mtu| mtu != link.mtu()) {
            continue;
        }
        set_mtu(args.guest, link)?;
        for (number, weather) in Weather::ALL.into_iter().enumerate() {
            let wanted: Vec<&Case> = CASES
                .iter()
                .filter(|case| case.weather == weather && case.there().is_none() && is_wanted(args, case))
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let capture = args.pcap.as_deref().map(|file| numbered(file, link.mtu(), number));
            let context = open(weather, capture)?;
            let _their_weather = Netem::set(args.guest, weather)?;
            let mut lab = Lab::new(context, link, args);
            for family in Family::ALL {
                lab.switch(family);
                for case in &wanted {
                    if args.short && !case.is_in_short(&lab) {
                        continue;
                    }
                    for asks in [Asks::We, Asks::Kernel].into_iter().filter(|asks| case.is_for(*asks, family))
                    {
                        totals.begin(&lab)?;
                        let wrong = case.run(&mut lab, asks).err().map(|error| error.to_string());
                        let column = Column { link, family, asks };
                        totals.end(&lab, case, column)?;
                        progress(case, column, wrong.as_deref());
                        if wrong.is_some() {
                            lab.forget();
                        }
                        table.push(Cell { case: case.name, column, wrong });
                    }
                }
            }
            totals.add(&lab);
        }
    }
    table.wrong = totals.wrong();
    table.notes = totals.notes()?;
    table.notes.extend(alone::differences(args.guest)?);
    doctor::run(args, &mut table)?;
    Ok(table)
}

pub(crate) fn is_wanted(args: &Args, case: &Case) -> bool {
    args.only.is_empty() || args.only.iter().any(|part| case.name.contains(part.as_str()))
}

pub(crate) fn progress(case: &Case, column: Column, wrong: Option<&str>) {
    eprintln!("{:22} {column:32} {}", case.name, wrong.unwrap_or("ok"));
}

fn open(weather: Weather, capture: Option<PathBuf>) -> Result<Context> {
    let device = if weather == Weather::LeftToOthers { LOOPBACK } else { BRIDGE };
    let mut builder = Context::builder(device).path(PathPolicy::Forbid);
    if let Some(plan) = weather.faults()? {
        builder = builder.faults(plan);
    }
    if let Some(file) = capture {
        builder = builder.capture(file);
    }
    Ok(builder.open()?)
}

/// `a.pcap` for the first, `a-1500-2.pcap` for later ones.
fn numbered(file: &Path, mtu: u32, number: usize) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let end = file.extension().map_or_else(|| "pcap".into(), |end| end.to_string_lossy());
    file.with_file_name(format!("{stem}-{mtu}-{number}.{end}"))
}

/// Both ends of the wire and what lies between.
pub(crate) fn set_mtu(guest: IpAddr, link: Link) -> Result<()> {
    let mtu = link.mtu().to_string();
    let ours = || -> Result<()> {
        for interface in [TAP, BRIDGE] {
            let done = Command::new("ip").args(["link", "set", interface, "mtu", &mtu]).status()?;
            if !done.success() {
                return Err(format!("`ip link set {interface} mtu {mtu}` ended with {done}").into());
            }
        }
        Ok(())
    };
    ours()?;
    Far::connect(guest)?.run(&format!("ip link set eth0 mtu {mtu}"))?;
    Ok(())
}

/// The guest's weather, until it is dropped.
struct Netem(Option<IpAddr>);

impl Netem {
    fn set(guest: IpAddr, weather: Weather) -> Result<Self> {
        let Weather::Theirs(what) = weather else { return Ok(Self(None)) };
        Far::connect(guest)?.run(&format!("tc qdisc replace dev eth0 root netem {what}"))?;
        Ok(Self(Some(guest)))
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        if let Some(guest) = self.0 {
            let gone =
                Far::connect(guest).and_then(|mut far| far.run("tc qdisc del dev eth0 root").map(drop));
            if let Err(error) = gone {
                eprintln!("interop: the guest's weather stays: {error}");
            }
        }
    }
}
