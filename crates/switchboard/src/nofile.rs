//! Whether the process may have the descriptors that a switchboard needs.

use ferroce_sys::limits::{DescriptorLimit, open_descriptors};

use super::SOCKETS;
use super::error::{SwitchError, refused};

/// Descriptors that joining needs: the sockets, the shared file, and a few of the member's own.
const NEEDED: u64 = SOCKETS as u64 + 16;

/// Descriptors beyond that a program should have for itself after a limit was raised.
const SPARE: u64 = 256;

/// Sees to it that there is room for the sockets of all slots: raises the soft limit towards the hard
/// one if need be.
pub(super) fn make_room() -> Result<(), SwitchError> {
    let needs = open_descriptors() + NEEDED;
    let limit = DescriptorLimit::get().map_err(refused("the limit of descriptors"))?;
    let Some(soft) = raised((limit.soft, limit.hard), needs)? else { return Ok(()) };
    let raised = DescriptorLimit { soft, ..limit };
    raised.set().map_err(|_| SwitchError::TooFewDescriptors { limit: soft, needs })
}

/// What the soft limit has to become, if it has to change; `(soft, hard)` is what it is.
fn raised((soft, hard): (u64, u64), needs: u64) -> Result<Option<u64>, SwitchError> {
    if soft >= needs {
        return Ok(None);
    }
    if hard < needs {
        return Err(SwitchError::TooFewDescriptors { limit: hard, needs });
    }
    Ok(Some(hard.min(needs + SPARE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_only_if_need_be_and_only_as_far_as_the_hard_one() {
        let fine = |limit, needs| raised(limit, needs).unwrap();
        assert_eq!(fine((200, 200), 200), None);
        assert_eq!(fine((199, 200), 200), Some(200), "the hard limit is just enough");
        assert_eq!(fine((10, 1000), 200), Some(200 + SPARE));
        for hard in [0, 150, 199] {
            let error = raised((hard, hard), 200).unwrap_err();
            assert!(matches!(error, SwitchError::TooFewDescriptors { limit, needs: 200 } if limit == hard));
        }
    }
}
