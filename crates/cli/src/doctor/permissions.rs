//! Whether this process, and those of other users, may open the device files of RDMA.

use super::facts::{Facts, Rights};
use super::finding::Finding;
use super::live::ONLY_FILES;

/// Where they are.
const FOLDER: &str = "/dev/infiniband";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let class = "/sys/class/infiniband_verbs";
    let mut files: Vec<String> =
        facts.names(class).into_iter().filter(|name| name.starts_with("uverbs")).collect();
    if facts.has("/sys/class/misc/rdma_cm") || facts.has(&format!("{FOLDER}/rdma_cm")) {
        files.push("rdma_cm".to_owned());
    }
    if files.is_empty() {
        return vec![Finding::unknown("which device files programs open").seen(format!("{class} has none"))];
    }
    files.iter().map(|name| of_file(facts, name, &format!("{FOLDER}/{name}"))).collect()
}

fn of_file(facts: &Facts, name: &str, path: &str) -> Finding {
    let device = facts.value(&format!("/sys/class/infiniband_verbs/{name}/ibdev"));
    let about = device.map_or_else(|| name.to_owned(), |device| format!("{device} ({name})"));
    let Some(rights) = facts.rights(path) else {
        return Finding::fault(format!("the kernel has {name}, and there is no {path}"))
            .about(about)
            .seen(format!("/sys/class/infiniband_verbs or /sys/class/misc has {name}; {path} is not there"))
            .remedy("let udev make it; a container is to be started with the device files:")
            .command("udevadm trigger --subsystem-match=infiniband_verbs --subsystem-match=misc")
            .command(format!("podman run --device={FOLDER} ..."));
    };
    let seen = format!("{path}: mode {:04o}, uid {}, gid {}", rights.mode, rights.uid, rights.gid);
    match facts.open(path) {
        Ok(()) => opened(facts, name, path, rights).about(about).seen(seen),
        Err(why) if why == ONLY_FILES => {
            Finding::unknown(format!("whether {path} may be opened")).about(about).seen(seen).seen(why)
        }
        Err(why) => {
            let finding = Finding::fault(format!("this user may not open {path}"));
            remedy(finding.about(about).seen(format!("opened just now: {why}")).seen(seen), rights, path)
        }
    }
}

/// What is to be said of a file that this process may open.
fn opened(facts: &Facts, name: &str, path: &str, rights: Rights) -> Finding {
    let all = rights.mode & 0o006 == 0o006;
    let group = rights.mode & 0o060 == 0o060 && rights.gid != 0;
    match facts.uid() {
        Some(0) if !all && group => {
            Finding::note(format!("root and the group {} may open {name}, other users may not", rights.gid))
        }
        Some(0) if !all => remedy(Finding::warning(format!("only root may open {name}")), rights, path),
        _ => Finding::ok(format!("{name} may be opened")),
    }
}

fn remedy(finding: Finding, rights: Rights, path: &str) -> Finding {
    if rights.mode & 0o060 == 0o060 && rights.gid != 0 {
        return finding
            .remedy("become a member of the group of the file, and log in again:")
            .command(format!("sudo usermod -aG \"$(stat -c %G {path})\" \"$USER\""));
    }
    // Files of devices have a subsystem of their own, `rdma_cm` has a name only.
    let (of, rules) = match path.rsplit('/').next() {
        Some("rdma_cm") => ("KERNEL==\"rdma_cm\"", "90-rdma-cm.rules"),
        _ => ("SUBSYSTEM==\"infiniband_verbs\"", "90-rdma.rules"),
    };
    finding
        .remedy("let all users open it, now and after each start; what they may do, the kernel checks:")
        .command(format!("sudo chmod 0666 {path}"))
        .command(format!("echo '{of}, MODE=\"0666\"' | sudo tee /etc/udev/rules.d/{rules}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::finding::Level;
    use super::super::planted::Planted;
    use super::*;

    fn with_mode(mode: u32) -> Planted {
        let planted = Planted::rxe();
        let file = planted.facts().place("/dev/infiniband/uverbs0");
        fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
        planted
    }

    #[test]
    fn files_for_all_are_fine() {
        let said = check(&Planted::rxe().facts());
        let words: Vec<&str> = said.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(words, ["uverbs0 may be opened", "rdma_cm may be opened"]);
        assert_eq!(said[0].about.as_deref(), Some("rxe0 (uverbs0)"));
    }

    #[test]
    fn a_file_that_this_user_may_not_open_is_a_fault() {
        let mut planted = with_mode(0o600);
        planted.answers.refused.push("uverbs0".to_owned());
        let said = &check(&planted.facts())[0];
        assert_eq!(
            (said.level, said.commands[0].as_str()),
            (Level::Fault, "sudo chmod 0666 /dev/infiniband/uverbs0")
        );
        assert!(said.seen[1].contains("mode 0600"), "{:?}", said.seen);
    }

    #[test]
    fn each_file_has_a_rule_of_its_own_for_udev() {
        let mut planted = Planted::rxe();
        planted.answers.refused = vec!["uverbs0".to_owned(), "rdma_cm".to_owned()];
        let said = check(&planted.facts());
        assert_eq!(
            [&said[0].commands[1], &said[1].commands[1]],
            [
                "echo 'SUBSYSTEM==\"infiniband_verbs\", MODE=\"0666\"' | sudo tee /etc/udev/rules.d/90-rdma.rules",
                "echo 'KERNEL==\"rdma_cm\", MODE=\"0666\"' | sudo tee /etc/udev/rules.d/90-rdma-cm.rules",
            ]
        );
    }

    #[test]
    fn root_is_told_what_other_users_may_not() {
        let planted = with_mode(0o600);
        assert_eq!(check(&planted.facts())[0].level, Level::Warning);
        planted.file("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n");
        assert_eq!(check(&planted.facts())[0].level, Level::Ok);
    }

    #[test]
    fn a_file_that_is_missing_is_a_fault() {
        let planted = Planted::rxe();
        planted.remove("/dev/infiniband/uverbs0");
        let said = &check(&planted.facts())[0];
        assert!(
            said.level == Level::Fault && said.what.contains("there is no /dev/infiniband/uverbs0"),
            "{said:?}"
        );
        planted.remove("/sys/class/infiniband_verbs").remove("/sys/class/misc").remove("/dev/infiniband");
        assert_eq!(check(&planted.facts())[0].level, Level::Unknown);
    }
}
