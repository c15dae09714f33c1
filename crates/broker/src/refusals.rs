//! How often a connection did not come about, by reason.

use crate::error::MemberRefusal;

/// Writes the counters once, with their names, what they count, and for which refusal.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $refusal:pat,)*) => {
        /// How often a connection did not come about, counted by reason.
        ///
        /// Requests that others sent count as well as those that this member sent: whatever knocks here is
        /// seen here.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Refusals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Refusals {
            /// Name and value of each.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            pub(crate) const fn count(&mut self, refusal: &MemberRefusal) {
                match refusal {
                    $($refusal => self.$name += 1,)*
                }
            }
        }
    };
}

counters! {
    /// Members that could not be reached.
    unreached: MemberRefusal::Unreached(_),
    /// What spoke was not a broker.
    no_broker: MemberRefusal::NoBroker,
    /// Another version of the protocol.
    version: MemberRefusal::Version { .. },
    /// A request in the name of a member, from an address that is not the member's.
    foreign_address: MemberRefusal::ForeignAddress { .. },
    /// Only one side has a secret.
    secret_missing: MemberRefusal::SecretMissing { .. },
    /// A proof that was not made with the same secret for the same words.
    wrong_secret: MemberRefusal::WrongSecret { .. },
    /// Another member was meant than the one that was found.
    other_member: MemberRefusal::OtherMember { .. },
    /// Another lane.
    lane: MemberRefusal::Lane { .. },
    /// A member that only one of the two lists has.
    unlisted: MemberRefusal::Unlisted { .. },
    /// A member that the two lists have at different addresses.
    other_address: MemberRefusal::OtherAddress { .. },
    /// Messages with another limit.
    max_message: MemberRefusal::MaxMessage { .. },
    /// A region that is needed and too small.
    region_too_small: MemberRefusal::RegionTooSmall { .. },
    /// A request of a member that is to wait until it is asked.
    out_of_turn: MemberRefusal::OutOfTurn { .. },
    /// Requests beyond what is answered at a time.
    too_many: MemberRefusal::TooMany { .. },
    /// What was said cannot be read.
    malformed: MemberRefusal::Malformed(_),
    /// A handshake that took too long.
    silent: MemberRefusal::Silent,
    /// A handshake that the other side broke off.
    hung_up: MemberRefusal::HungUp,
    /// This member's own device refused something.
    here: MemberRefusal::Here(_),
}
