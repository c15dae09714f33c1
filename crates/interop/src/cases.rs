//! All cases, in the order in which they run.

mod errors;
mod moves;
mod objects;
mod unreliable;

use ferroce_verbs::FaultPlan;

use crate::Result;
use crate::connections;
use crate::doctor::faults::{self, Fault};
use crate::lab::{Family, Lab};
use crate::pair::Asks;
use crate::pingpong;
use crate::probes;
use crate::stock::{InShort, Tool};
use crate::stock_cm::{Manner, Meeting, Over};

/// One thing that we and the kernel do together, in both directions.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) weather: Weather,
    does: Does,
}

/// The program that works at our end.
enum Does {
    /// This program.
    Ours(fn(&mut Lab, Asks) -> Result<()>),
    /// This program, and only the kernel can ask, or only we.
    OneWay(Asks, fn(&mut Lab) -> Result<()>),
    /// A program that is not ours, on our drop-in library.
    Stock(Tool),
    /// Such a program that connects by `rdma_cm`.
    Meets(Meeting),
    /// `ferroce selftest` in the guest, after those before.
    Tests,
    /// `ferroce doctor` in the guest, after all others.
    Diagnoses(Fault),
}

/// What `ferroce` does in the guest.
pub(crate) enum There<'c> {
    /// It tries the kernel's device.
    Tests,
    /// It names what is broken.
    Diagnoses(&'c Fault),
}

impl Case {
    /// Whether it can be done with this side as the requester, over this family.
    pub(crate) fn is_for(&self, asks: Asks, family: Family) -> bool {
        match &self.does {
            Does::OneWay(only, _) => *only == asks,
            Does::Meets(meeting) => family == Family::V4 || meeting.over == Over::Both,
            Does::Ours(_) | Does::Stock(_) => true,
            Does::Tests | Does::Diagnoses(_) => false,
        }
    }

    /// What `ferroce` does in the guest, if that is what it is about.
    pub(crate) const fn there(&self) -> Option<There<'_>> {
        match &self.does {
            Does::Tests => Some(There::Tests),
            Does::Diagnoses(fault) => Some(There::Diagnoses(fault)),
            _ => None,
        }
    }

    pub(crate) fn run(&self, lab: &mut Lab, asks: Asks) -> Result<()> {
        match &self.does {
            Does::Ours(run) => run(lab, asks),
            Does::OneWay(_, run) => run(lab),
            Does::Stock(tool) => tool.run(lab, asks),
            Does::Meets(meeting) => meeting.run(lab, asks),
            Does::Tests | Does::Diagnoses(_) => Err("it runs by itself, after all others".into()),
        }
    }

    /// Whether the short form has it with this family and MTU.
    pub(crate) fn is_in_short(&self, lab: &Lab) -> bool {
        let in_short = |in_short| match in_short {
            InShort::Twice => lab.is_diagonal(),
            InShort::Once => lab.is_diagonal() && lab.family == Family::V4,
            InShort::Never => false,
        };
        match &self.does {
            Does::Stock(tool) => in_short(tool.in_short),
            Does::Meets(meeting) => in_short(meeting.in_short),
            Does::Ours(_) | Does::OneWay(..) => lab.is_diagonal() || !self.is_slow(),
            Does::Tests | Does::Diagnoses(_) => false,
        }
    }

    /// Whether it takes seconds.
    fn is_slow(&self) -> bool {
        ["large", "pingpong", "unreliable", "cm_", "probes"].iter().any(|word| self.name.contains(word))
    }

    /// Whether the kernel should take every packet of ours: its queue pair is there and well to the end of the
    /// case. Where it is not, a packet that is sent once more meets no queue pair.
    pub(crate) fn is_accounted(&self) -> bool {
        let ends_badly =
            ["send_inv", "bad_rkey_write", "bad_rkey_read", "wrong_qpn", "reregistered"].contains(&self.name);
        let foreign = matches!(self.does, Does::Stock(_) | Does::Meets(_))
            || ["pingpong", "cm_"].iter().any(|word| self.name.contains(word));
        self.weather == Weather::Fair && !ends_badly && !foreign
    }
}

/// What happens to packets on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Nothing.
    Fair,
    /// What the guest sends is lost or doubled.
    Theirs(&'static str),
    /// What we send is lost, doubled, held back or damaged.
    Ours(&'static str),
    /// Nothing, and this process leaves its addresses to other programs of ours: each takes one of them alone.
    LeftToOthers,
}

impl Weather {
    /// All that occur, in an order that opens our device seldom.
    pub(crate) const ALL: [Self; 7] =
        [Self::Fair, THEIR_LOSS, THEIR_REPEATS, OUR_LOSS, OUR_REPEATS, OUR_DAMAGE, Self::LeftToOthers];

    /// For our device.
    pub(crate) fn faults(self) -> Result<Option<FaultPlan>> {
        match self {
            Self::Ours(plan) => Ok(Some(FaultPlan::parse(plan)?)),
            Self::Fair | Self::Theirs(_) | Self::LeftToOthers => Ok(None),
        }
    }
}

const THEIR_LOSS: Weather = Weather::Theirs("loss 2%");
const THEIR_REPEATS: Weather = Weather::Theirs("duplicate 20%");
const OUR_LOSS: Weather = Weather::Ours("loss=0.02,seed=5");
const OUR_REPEATS: Weather = Weather::Ours("dup=0.2,reorder=0.05,seed=5");
const OUR_DAMAGE: Weather = Weather::Ours("corrupt=0.02,seed=5");

const fn fair(name: &'static str, shows: &'static str, run: fn(&mut Lab, Asks) -> Result<()>) -> Case {
    Case { name, shows, weather: Weather::Fair, does: Does::Ours(run) }
}

const fn foul(name: &'static str, shows: &'static str, weather: Weather) -> Case {
    Case { name, shows, weather, does: Does::Ours(moves::much) }
}

const fn one_way(
    name: &'static str,
    shows: &'static str,
    asks: Asks,
    run: fn(&mut Lab) -> Result<()>,
) -> Case {
    Case { name, shows, weather: Weather::Fair, does: Does::OneWay(asks, run) }
}

/// A stock program, and how often the short form has it.
const fn stock(
    in_short: InShort,
    name: &'static str,
    program: &'static str,
    ways: &'static [&'static str],
) -> Case {
    let does = Does::Stock(Tool { program, ways, in_short });
    Case { name, shows: program, weather: Weather::Fair, does }
}

/// A stock program of `rdma_cm`, and how often the short form has it.
const fn meets(
    in_short: InShort,
    name: &'static str,
    shows: &'static str,
    (server, client): (&'static str, &'static str),
    manner: Manner,
    over: Over,
) -> Case {
    let does = Does::Meets(Meeting { server, client, manner, over, in_short });
    Case { name, shows, weather: Weather::Fair, does }
}

const fn ill(name: &'static str, shows: &'static str, fault: Fault) -> Case {
    Case { name, shows, weather: Weather::Fair, does: Does::Diagnoses(fault) }
}

/// In the order of the table.
pub(crate) const CASES: &[Case] = &[
    fair("send", "RC SEND", moves::send),
    fair("send_imm", "RC SEND with immediate data", moves::send_imm),
    fair("send_inv", "RC SEND with invalidation", moves::send_inv),
    fair("write", "RC RDMA WRITE", moves::write),
    fair("write_imm", "RC RDMA WRITE with immediate data", moves::write_imm),
    fair("read", "RC RDMA READ", moves::read),
    fair("cas", "RC compare and swap", moves::compare_swap),
    fair("faa", "RC fetch and add", moves::fetch_add),
    fair("zero", "RC messages of no bytes", moves::zero),
    fair("odd", "RC messages of 1, 2, 3, 5 and 1001 bytes", moves::odd),
    fair("multi", "RC messages of several packets", moves::multi),
    fair("large_send", "RC SEND of 16 MiB", moves::large_send),
    fair("large_write", "RC RDMA WRITE of 16 MiB", moves::large_write),
    fair("large_read", "RC RDMA READ of 16 MiB", moves::large_read),
    fair("uc", "UC SEND and WRITE, with and without immediate data", moves::uc),
    fair("ud", "UD SEND with and without immediate data, with GRH", moves::ud),
    fair("bad_rkey_write", "a WRITE with a wrong key is refused", errors::bad_rkey_write),
    fair("bad_rkey_read", "a READ with a wrong key is refused", errors::bad_rkey_read),
    fair("rnr", "a SEND waits for a receive that comes late", errors::rnr),
    fair("wrong_qpn", "a queue pair that is not there does not answer", errors::wrong_qpn),
    fair("reregistered", "a region of ours that was registered anew", objects::reregistered),
    fair("cq_resize", "a completion queue of ours changes its size under way", objects::cq_resize),
    one_way("srq", "a shared receive queue of ours runs low and grows under way", Asks::Kernel, objects::srq),
    fair("moderation", "events of ours that wait for company", objects::moderation),
    one_way("rate_limit", "a rate limit of ours", Asks::We, objects::rate_limit),
    foul("their_loss", "the guest's netem loses 2 %", THEIR_LOSS),
    foul("their_repeats", "the guest's netem doubles 20 %", THEIR_REPEATS),
    foul("our_loss", "we lose 2 %", OUR_LOSS),
    foul("our_repeats", "we double 20 % and hold back 5 %", OUR_REPEATS),
    foul("our_damage", "we flip a bit in 2 % of the packets", OUR_DAMAGE),
    Case {
        name: "their_loss_unreliable",
        shows: "UC and UD while the guest loses 2 %: what arrives is whole",
        weather: THEIR_LOSS,
        does: Does::Ours(unreliable::kernel_loses),
    },
    Case {
        name: "our_loss_unreliable",
        shows: "UC and UD while we lose 2 %: what arrives is whole",
        weather: OUR_LOSS,
        does: Does::Ours(unreliable::we_lose),
    },
    fair("rc_pingpong", "ibv_rc_pingpong", pingpong::rc),
    fair("uc_pingpong", "ibv_uc_pingpong", pingpong::uc),
    fair("ud_pingpong", "ibv_ud_pingpong", pingpong::ud),
    Case {
        name: "rc_pingpong_loss",
        shows: "ibv_rc_pingpong while the guest loses 2 %",
        weather: THEIR_LOSS,
        does: Does::Ours(pingpong::rc_with_loss),
    },
    stock(
        InShort::Twice,
        "stock_rc_pingpong",
        "ibv_rc_pingpong",
        &["-c -n 100", "-c -e -n 1000", "-c -s 65536 -n 100"],
    ),
    stock(InShort::Never, "stock_uc_pingpong", "ibv_uc_pingpong", &["-c -n 100", "-c -e -n 1000"]),
    stock(
        InShort::Never,
        "stock_ud_pingpong",
        "ibv_ud_pingpong",
        &["-c -n 100 -s 1024", "-c -e -n 1000 -s 1024"],
    ),
    stock(InShort::Once, "stock_srq_pingpong", "ibv_srq_pingpong", &["-c -n 100", "-c -e -q 4 -n 1000"]),
    stock(
        InShort::Once,
        "stock_send_bw",
        "ib_send_bw",
        &[
            "-n 20 -s 65536",
            "-n 20 -s 65536 -b",
            "-n 20 -s 4096 -q 4",
            "-n 20 -s 4096 -e",
            "-n 20 -s 4096 -c UC",
            "-n 20 -s 1024 -c UD",
            "-n 20 -s 4096 -r 64 --use-srq -q 4",
        ],
    ),
    stock(
        InShort::Never,
        "stock_send_lat",
        "ib_send_lat",
        &["-n 20 -s 8", "-n 20 -s 64 -I 64", "-n 20 -s 1024 -c UC", "-n 20 -s 1024 -c UD", "-n 20 -s 8 -e"],
    ),
    stock(
        InShort::Twice,
        "stock_write_bw",
        "ib_write_bw",
        &[
            "-n 20 -s 65536",
            "-n 10 -a",
            "-n 20 -s 8192 -b -q 4",
            "-n 20 -s 65536 -c UC",
            "-n 20 -s 64 -I 64 -l 5",
        ],
    ),
    stock(InShort::Never, "stock_write_lat", "ib_write_lat", &["-n 20 -s 8", "-n 20 -s 4096 -c UC"]),
    stock(
        InShort::Once,
        "stock_read_bw",
        "ib_read_bw",
        &["-n 20 -s 65536", "-n 5 -a", "-n 20 -s 8192 -b -q 4", "-n 20 -s 4096 -e"],
    ),
    stock(InShort::Never, "stock_read_lat", "ib_read_lat", &["-n 20 -s 8", "-n 20 -s 65536"]),
    stock(
        InShort::Never,
        "stock_atomic_bw",
        "ib_atomic_bw",
        &["-n 20 -A CMP_AND_SWAP", "-n 20 -A FETCH_AND_ADD", "-n 20 -A FETCH_AND_ADD -b -q 4"],
    ),
    stock(
        InShort::Never,
        "stock_atomic_lat",
        "ib_atomic_lat",
        &["-n 20 -A FETCH_AND_ADD", "-n 20 -A CMP_AND_SWAP"],
    ),
    meets(
        InShort::Twice,
        "stock_rping",
        "rping on both sides, contents compared",
        ("rping -s -a @S -p 7171 -C 10 -S 1000 -v", "rping -c -a @S -p 7171 -C 10 -S 1000 -V -v"),
        Manner::Ends,
        Over::Both,
    ),
    meets(
        InShort::Once,
        "stock_ucmatose",
        "ucmatose on both sides",
        ("ucmatose -b @S -p 7172 -c 3 -C 10 -S 100", "ucmatose -s @S -p 7172 -c 3 -C 10 -S 100"),
        Manner::Ends,
        Over::Both,
    ),
    meets(
        InShort::Twice,
        "stock_udaddy",
        "udaddy on both sides",
        ("udaddy -b @S -c 2 -C 10 -S 100", "udaddy -s @S -c 2 -C 10 -S 100"),
        Manner::Ends,
        Over::Both,
    ),
    meets(
        InShort::Once,
        "stock_mckey",
        "mckey on both sides: a group",
        ("mckey -m @G -b @O -C 5", "mckey -m @G -s -b @O -C 5"),
        Manner::Listens,
        Over::V4,
    ),
    meets(
        InShort::Once,
        "stock_rdma_client",
        "rdma_client and rdma_server",
        ("rdma_server -s @S -p 7173", "rdma_client -s @S -p 7173"),
        Manner::Ends,
        Over::Both,
    ),
    meets(
        InShort::Once,
        "stock_rdma_xclient",
        "rdma_xclient and rdma_xserver",
        ("rdma_xserver -p 7175", "rdma_xclient -s @S -p 7175"),
        Manner::Ends,
        Over::V4,
    ),
    meets(
        InShort::Once,
        "stock_cmtime",
        "cmtime, 20 connections at once",
        ("cmtime -b @S -p 7176 -c 20", "cmtime -s @S -p 7176 -c 20"),
        Manner::GoesOn,
        Over::Both,
    ),
    meets(
        InShort::Twice,
        "stock_rstream",
        "rstream on both sides: rsockets, contents compared",
        ("rstream -b @S -p 7177 -S 4096 -C 100 -T v", "rstream -s @S -p 7177 -S 4096 -C 100 -T v"),
        Manner::Ends,
        Over::Both,
    ),
    meets(
        InShort::Twice,
        "stock_riostream",
        "riostream on both sides: WRITEs into memory that a program has shown",
        ("riostream -b @S -p 7178 -S 4096 -C 100 -T v", "riostream -s @S -p 7178 -S 4096 -C 100 -T v"),
        Manner::Ends,
        Over::Both,
    ),
    fair("cm_rping", "rping, connected by rdma_cm", connections::rping),
    fair("cm_ucmatose", "ucmatose, three connections of rdma_cm", connections::ucmatose),
    fair("cm_udaddy", "udaddy, datagrams to a service that rdma_cm finds", connections::udaddy),
    fair(
        "cm_reject",
        "no program listens, or one refuses, and the asking side knows which",
        connections::reject,
    ),
    fair("cm_killed", "one end of an rping goes without a word", connections::killed),
    Case {
        name: "probes",
        shows: "probes of `ferroce ping` and of a prober in C, answered by the other side",
        weather: Weather::LeftToOthers,
        does: Does::Ours(probes::probes),
    },
    Case {
        name: "selftest",
        shows: "`ferroce selftest` in the guest: some cases over the kernel's device, and nothing that is not known of it",
        weather: Weather::Fair,
        does: Does::Tests,
    },
    ill("doctor_well", "`ferroce doctor` in the guest has no complaint, and loads no module", faults::WELL),
    ill("doctor_no_module", "it names: soft-RoCE is not loaded", faults::NO_MODULE),
    ill("doctor_no_link", "it names: soft-RoCE has no device", faults::NO_LINK),
    ill("doctor_no_cm", "it names: `rdma_ucm` is not loaded", faults::NO_CM),
    ill("doctor_down", "it names: the interface is switched off", faults::DOWN),
    ill("doctor_no_carrier", "it names: a second port has no link", faults::NO_CARRIER),
    ill(
        "doctor_no_address",
        "it names: no address, so no RoCEv2 GID that reaches beyond the link",
        faults::NO_ADDRESS,
    ),
    ill("doctor_small_mtu", "it names: an MTU without room for RoCE", faults::SMALL_MTU),
    ill("doctor_unlike_mtu", "it names: neighbours with unlike MTUs", faults::UNLIKE_MTU),
    ill("doctor_memlock", "it names: little memory may be locked", faults::MEMLOCK),
    ill("doctor_no_permission", "it names: a device file that may not be opened", faults::NO_PERMISSION),
    ill("doctor_no_file", "it names: a device file that is missing", faults::NO_FILE),
    ill("doctor_firewall", "it names: a rule that drops UDP port 4791", faults::FIREWALL),
    ill(
        "doctor_rp_filter",
        "it names: strict reverse paths of two interfaces in a subnet",
        faults::RP_FILTER,
    ),
    ill("doctor_no_library", "it names: no `libibverbs`", faults::NO_LIBRARY),
    ill("doctor_no_provider", "it names: `libibverbs` without the provider", faults::NO_PROVIDER),
    ill("doctor_loopback_down", "it names: the loopback interface is off", faults::LOOPBACK_DOWN),
    ill("doctor_few_files", "it names: few files may be opened", faults::FEW_FILES),
    ill("doctor_stopped_leader", "it names: a switchboard whose leader is stopped", faults::STOPPED_LEADER),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_weather_is_visited() {
        for (index, case) in CASES.iter().enumerate() {
            assert!(CASES[..index].iter().all(|other| other.name != case.name), "{}", case.name);
            assert!(Weather::ALL.contains(&case.weather), "{}", case.name);
            assert!(case.weather.faults().is_ok(), "{}", case.name);
        }
    }
}
