//! Whether a lossy network is made ready for cards: priority flow control, congestion control, and the class of
//! connections. What cannot be read from files is asked of `dcb`.

use super::facts::Facts;
use super::finding::{Finding, Level};
use super::rdma::{Device, Port};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let cards = facts.devices().iter().filter(|device| !device.software);
    let ports = cards.flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    let findings: Vec<Finding> = ports
        .filter(|(_, port)| port.ethernet)
        .filter_map(|(device, port)| Some((device, port, port.netdev()?)))
        .flat_map(|(device, port, netdev)| of_port(facts, device, port, netdev))
        .collect();
    if findings.is_empty() {
        return vec![Finding::ok("no card needs a network without loss: software repeats what is lost")];
    }
    findings
}

fn of_port(facts: &Facts, device: &Device, port: &Port, netdev: &str) -> Vec<Finding> {
    let pfc = priorities(facts, netdev);
    let ecn = congestion(facts, netdev);
    let tos = service(facts, port);
    let mut findings = Vec::new();
    match &pfc {
        Ok((on, place)) if on.is_empty() => {
            // Congestion control alone is enough for newer cards.
            let level = if matches!(&ecn, Ok((true, _))) { Level::Note } else { Level::Warning };
            findings.push(
                Finding::new(
                    level,
                    format!("priority flow control is off on {netdev}: a full switch drops packets"),
                )
                .about(&port.name)
                .seen(place)
                .remedy("switch it on for one priority, here and on the switches (3 is an example):")
                .command(format!("dcb pfc set dev {netdev} prio-pfc all:off 3:on")),
            );
        }
        Ok((on, place)) => {
            let text = format!("priority flow control is on for priority {on} of {netdev}");
            findings.push(Finding::ok(text).about(&port.name).seen(place));
        }
        Err(why) => findings.push(
            Finding::unknown(format!("priority flow control of {netdev}"))
                .about(&port.name)
                .seen(why)
                .remedy("ask it of the driver, with the program `dcb` of iproute2:")
                .command(format!("dcb pfc show dev {netdev}")),
        ),
    }
    match ecn {
        Ok((true, place)) => {
            findings.push(
                Finding::ok(format!("congestion control (DCQCN) is on for {netdev}"))
                    .about(&port.name)
                    .seen(place),
            );
        }
        Ok((false, place)) => findings.push(
            Finding::warning(format!("congestion control (DCQCN) is off on {netdev}"))
                .about(&port.name)
                .seen(&place)
                .remedy("switch it on for the priority of RoCE, for both parts (3 is an example):")
                .command(format!("echo 1 > /sys/class/net/{netdev}/ecn/roce_np/enable/3"))
                .command(format!("echo 1 > /sys/class/net/{netdev}/ecn/roce_rp/enable/3")),
        ),
        Err(place) => {
            let finding = Finding::unknown(format!("congestion control (ECN) of {netdev}"))
                .about(&port.name)
                .seen(place);
            findings.push(match device.driver.as_deref() {
                Some("mlx5_core") => finding.remedy("some drivers show it to root:").command(format!(
                    "sudo grep -r . /sys/kernel/debug/mlx5/\"$(basename \"$(readlink /sys/class/net/{netdev}/device)\")\"/cc_params"
                )),
                _ => finding.remedy("ask the tools of its maker"),
            });
        }
    }
    if let (Ok((on, _)), Some((0, place))) = (&pfc, tos)
        && !on.is_empty()
    {
        findings.push(
            Finding::warning(
                "connections by address (rdma_cm) have no class: flow control of a priority misses them",
            )
            .about(&port.name)
            .seen(format!("{place}: 0"))
            .remedy("give them the class that the switches know (DSCP 26 is an example):")
            .command(format!("echo 104 > {place}")),
        );
    }
    findings
}

/// The priorities with flow control, and where that was read.
fn priorities(facts: &Facts, netdev: &str) -> Result<(String, String), String> {
    let path = format!("/sys/class/net/{netdev}/qos/pfc");
    let line = ["dcb", "pfc", "show", "dev", netdev];
    let (list, place): (Vec<String>, String) = match facts.value(&path) {
        // Some drivers have a folder with a bit for each priority.
        Some(text) => (
            text.split([',', ' '])
                .enumerate()
                .filter(|(_, bit)| *bit == "1")
                .map(|(at, _)| at.to_string())
                .collect(),
            path,
        ),
        None => (on(&facts.live.run(&line)?)?, format!("`{}`", line.join(" "))),
    };
    Ok((list.join(", "), place))
}

/// The priorities that are on, in a line such as `prio-pfc 0:off 1:off 2:off 3:on`.
fn on(text: &str) -> Result<Vec<String>, String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("prio-pfc"));
    let words = line.ok_or_else(|| "dcb tells no prio-pfc".to_owned())?.split_whitespace();
    Ok(words.filter_map(|word| word.strip_suffix(":on")).map(str::to_owned).collect())
}

/// Whether both parts of congestion control are on for a priority, and where that was read; else where it is not.
fn congestion(facts: &Facts, netdev: &str) -> Result<(bool, String), String> {
    let at = format!("/sys/class/net/{netdev}/ecn");
    let part = |part: &str| {
        let folder = format!("{at}/{part}/enable");
        let names = facts.names(&folder);
        let is_on = |name: &String| facts.value(&format!("{folder}/{name}")).as_deref() == Some("1");
        (!names.is_empty()).then(|| names.iter().any(is_on))
    };
    match (part("roce_np"), part("roce_rp")) {
        (Some(np), Some(rp)) => Ok((np && rp, format!("{at}: roce_np {np}, roce_rp {rp}"))),
        _ => Err(format!("{at} is not there")),
    }
}

/// The class that connections by address get, where the kernel tells it.
fn service(facts: &Facts, port: &Port) -> Option<(u64, String)> {
    let (device, number) = port.name.rsplit_once('/')?;
    let place = format!("/sys/kernel/config/rdma_cm/{device}/ports/{number}/default_roce_tos");
    Some((facts.number(&place)?, place))
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;

    const DCB: &str = "dcb pfc show dev ens1";

    /// A card, of which `dcb` says this.
    fn card(said: &str) -> Planted {
        let mut planted = Planted::bare();
        planted.card("mlx5_0", "ens1", "mlx5_core");
        planted.answers.say(DCB, said);
        planted
    }

    fn ecn(planted: &Planted, np: &str, rp: &str) {
        planted.file("/sys/class/net/ens1/ecn/roce_np/enable/3", np);
        planted.file("/sys/class/net/ens1/ecn/roce_rp/enable/3", rp);
    }

    #[test]
    fn software_needs_no_such_thing() {
        assert_eq!(check(&Planted::rxe().facts())[0].level, Level::Ok);
    }

    #[test]
    fn flow_control_and_congestion_control_are_read() {
        let planted = card("pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:on 4:off\n");
        ecn(&planted, "1", "1");
        let said = check(&planted.facts());
        assert!(said.iter().all(|finding| finding.level == Level::Ok), "{said:?}");
        assert_eq!(said[0].what, "priority flow control is on for priority 3 of ens1");
    }

    #[test]
    fn both_off_is_a_warning_each_and_flow_control_alone_a_note() {
        let planted = card("prio-pfc 0:off 1:off\n");
        ecn(&planted, "1", "0");
        let levels = |planted: &Planted| {
            check(&planted.facts()).iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels(&planted), [Level::Warning, Level::Warning]);
        ecn(&planted, "1", "1");
        assert_eq!(levels(&planted), [Level::Note, Level::Ok]);
        planted.file("/sys/class/net/ens1/qos/pfc", "0,0,0,1,0,0,0,0\n");
        assert_eq!(levels(&planted), [Level::Ok, Level::Ok]);
    }

    #[test]
    fn what_no_file_and_no_program_tells_is_not_known() {
        let planted = Planted::bare();
        planted.card("mlx5_0", "ens1", "mlx5_core");
        let said = check(&planted.facts());
        assert!(said.iter().all(|finding| finding.level == Level::Unknown), "{said:?}");
        assert_eq!(said[0].commands, [DCB]);
    }

    #[test]
    fn connections_without_class_miss_flow_control() {
        let planted = card("prio-pfc 3:on\n");
        ecn(&planted, "1", "1");
        let path = "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos";
        planted.file(path, "0\n");
        assert_eq!(check(&planted.facts())[2].level, Level::Warning);
        planted.file(path, "104\n");
        assert_eq!(check(&planted.facts()).len(), 2);
    }
}
