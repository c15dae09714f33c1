//! What processes that share memory hold while they have nothing to say to each other.

use ferroce_verbs::*;

use crate::NET;
use crate::child::{eventually, run_alone};
use crate::common::{End, SOON};
use crate::peer::Link;

/// Kilobytes of lanes that this process has in memory, and how many lanes it has mapped.
fn lanes() -> (u64, u64) {
    let (mut kilobytes, mut count, mut is_lane) = (0, 0, false);
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default() {
            "Rss:" if is_lane => kilobytes += words.next().unwrap().parse::<u64>().unwrap(),
            first if !first.ends_with(':') => {
                is_lane = line.contains("ferroce-lane");
                count += u64::from(is_lane);
            }
            _ => {}
        }
    }
    (kilobytes, count)
}

/// Alone in a process: it counts what that holds.
pub(crate) fn play() {
    let address = [127, 0, NET, 23];
    let context = Context::builder("lo").address(address).shared(true).open().unwrap();
    let end = End::new(&context, Service::Rc);
    let link = Link::with(end, "sleep", address, &ConnectOptions::default());
    let Link { end, remote, .. } = &link;
    for _ in 0..2 {
        for id in 0..200 {
            end.qp.write(end.region.slice(..8000), remote.slice(..8000)).id(id).post().unwrap();
            assert!(end.cq.wait(SOON).unwrap().is_success());
        }
        let (kilobytes, count) = lanes();
        assert!(count == 2 && (64..=512).contains(&kilobytes), "{kilobytes} KiB in {count} lanes");
        // What is left of each is the page of the words of both sides.
        eventually("both rings give their memory back", || lanes().0 <= 4 * count);
    }
}

mod waiting {
    use super::*;

    #[test]
    fn rings_of_processes_that_rest_have_no_memory() {
        run_alone("the_other_process", "rests", &[]);
    }
}
