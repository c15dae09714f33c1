//! The libraries that verbs programs load: `libibverbs`, `librdmacm`, and the provider for each device.

use super::facts::{Facts, joined};
use super::finding::{Finding, Level};

/// Where libraries are on most systems.
const FOLDERS: &[&str] = &["/usr/local/lib", "/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// The libraries themselves.
const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

/// Drivers of the kernel, with the name of their provider.
const PROVIDERS: &[(&str, &str)] = &[
    ("bnxt_en", "bnxt_re"),
    ("cxgb4", "cxgb4"),
    ("hns3", "hns"),
    ("i40e", "irdma"),
    ("ice", "irdma"),
    ("mana", "mana"),
    ("mlx4_core", "mlx4"),
    ("mlx5_core", "mlx5"),
    ("qede", "qedr"),
    ("rxe", "rxe"),
    ("siw", "siw"),
];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let folders = folders(facts);
    let has_devices = !facts.devices().is_empty();
    let mut findings: Vec<Finding> = ours(facts).into_iter().collect();
    let missing: Vec<&str> =
        LIBRARIES.into_iter().filter(|library| find(facts, &folders, library).is_none()).collect();
    if missing.is_empty() {
        let places = LIBRARIES.iter().filter_map(|library| find(facts, &folders, library));
        findings.push(Finding::ok("libibverbs and librdmacm are installed").seen(joined(places)));
        if has_devices {
            findings.extend(providers(facts, &folders));
        }
        return findings;
    }
    let level = if has_devices { Level::Fault } else { Level::Note };
    let text = format!("not installed: {} (`ferroce run` brings its own)", joined(&missing));
    findings.push(
        Finding::new(level, text)
            .seen(format!("not in /etc/ld.so.cache, nor in {}", joined(&folders)))
            .remedy("verbs programs on the kernel's devices need rdma-core (the names are those of Debian):")
            .command("sudo apt install libibverbs1 librdmacm1 ibverbs-providers ibverbs-utils"),
    );
    findings
}

/// Whether programs started from here load Ferroce's library instead.
fn ours(facts: &Facts) -> Option<Finding> {
    let path = facts.live.variable("LD_LIBRARY_PATH")?;
    let has = |folder: &&str, library: &str| facts.has(&format!("{folder}/{library}"));
    let ours =
        path.split(':').find(|folder| has(folder, "libibverbs.so.1") && has(folder, "libferroce.so.0"))?;
    let text =
        "programs started from here load Ferroce's libibverbs, and see its card, not those of the kernel";
    let finding = Finding::note(text).seen(format!("LD_LIBRARY_PATH: {ours}"));
    Some(finding.remedy("for the kernel's devices:").command("unset LD_LIBRARY_PATH"))
}

/// Whether each device has its provider: what is named in the configuration, and the file that it names.
fn providers(facts: &Facts, folders: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in facts.devices() {
        let driver = device.driver.as_deref().unwrap_or_default();
        let Some((_, provider)) = PROVIDERS.iter().find(|(name, _)| *name == driver) else {
            findings.push(
                Finding::unknown("which provider the device needs")
                    .about(&device.name)
                    .seen(format!("driver {driver:?}")),
            );
            continue;
        };
        let named = format!("/etc/libibverbs.d/{provider}.driver");
        let file = format!("lib{provider}-rdmav");
        let has_file = |folder: &String| {
            // One that is a library of its own, too, lies beside the others.
            let own = facts.names(folder).iter().any(|name| name.starts_with(&format!("lib{provider}.so")));
            own || facts.names(&format!("{folder}/libibverbs")).iter().any(|name| name.starts_with(&file))
        };
        let what = match (facts.has(&named), folders.iter().any(has_file)) {
            (true, true) => continue,
            (false, _) => format!("{named} is not there"),
            (true, false) => format!("{named} is there, and no {file}*.so"),
        };
        findings.push(
            Finding::fault(format!(
                "libibverbs has no provider for it: programs do not see the device ({provider})"
            ))
            .about(&device.name)
            .seen(what)
            .remedy("install the providers (the name is that of Debian):")
            .command("sudo apt install ibverbs-providers"),
        );
    }
    findings
}

/// Where the loader looks, as far as that is known.
fn folders(facts: &Facts) -> Vec<String> {
    let mut folders: Vec<String> = FOLDERS.iter().map(|&folder| folder.to_owned()).collect();
    for parent in ["/lib", "/usr/lib"] {
        let of_machine = facts.names(parent).into_iter().filter(|name| name.contains("-linux-gnu"));
        folders.extend(of_machine.map(|name| format!("{parent}/{name}")));
    }
    folders
}

/// Where a library is: in one of the folders, or in the cache of the loader.
fn find(facts: &Facts, folders: &[String], library: &str) -> Option<String> {
    let in_folder = folders.iter().map(|folder| format!("{folder}/{library}")).find(|path| facts.has(path));
    in_folder.or_else(|| {
        // The cache has whole paths, each with a zero behind it.
        let cache = facts.text("/etc/ld.so.cache").ok()?;
        let path =
            cache.split('\0').find(|path| path.starts_with('/') && path.ends_with(&format!("/{library}")));
        path.filter(|path| facts.has(path)).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;

    #[test]
    fn libraries_and_providers_are_found() {
        let planted = Planted::rxe();
        let said = check(&planted.facts());
        assert_eq!((said.len(), said[0].level), (1, Level::Ok), "{said:?}");
    }

    #[test]
    fn a_library_elsewhere_is_found_by_the_cache() {
        let planted = Planted::rxe();
        planted.remove("/usr/lib/x86_64-linux-gnu/libibverbs.so.1");
        assert_eq!(check(&planted.facts())[0].level, Level::Fault);
        planted.file("/etc/ld.so.cache", "glibc\0libibverbs.so.1\0/opt/rdma/libibverbs.so.1\0");
        assert_eq!(check(&planted.facts())[0].level, Level::Fault, "the cache may be old");
        planted.file("/opt/rdma/libibverbs.so.1", "x");
        assert_eq!(check(&planted.facts())[0].level, Level::Ok);
    }

    #[test]
    fn missing_libraries_are_a_note_where_there_is_no_device() {
        let said = &check(&Planted::bare().facts())[0];
        assert_eq!(said.level, Level::Note);
        assert!(said.what.starts_with("not installed: libibverbs.so.1, librdmacm.so.1 "), "{}", said.what);
    }

    #[test]
    fn a_device_without_provider_is_a_fault() {
        let planted = Planted::rxe();
        planted.remove("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so");
        let said = check(&planted.facts()).pop().unwrap();
        assert_eq!((said.level, said.about.as_deref()), (Level::Fault, Some("rxe0")));
        planted.remove("/etc/libibverbs.d/rxe.driver");
        let said = check(&planted.facts()).pop().unwrap();
        assert_eq!(said.seen, ["/etc/libibverbs.d/rxe.driver is not there"]);
    }

    #[test]
    fn our_own_library_on_the_path_is_told() {
        let mut planted = Planted::rxe();
        planted.file("/opt/f/libibverbs.so.1", "x").file("/opt/f/libferroce.so.0", "x");
        planted.answers.set("LD_LIBRARY_PATH", "/opt/none:/opt/f");
        assert!(check(&planted.facts())[0].what.contains("load Ferroce's libibverbs"));
    }
}
