//! What a case works with: our device, the guest, and pairs of queue pairs between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ferroce_verbs::{Context, DeviceCounters, PathMtu, Service};

use crate::far::Far;
use crate::pair::{NEAR_TIMEOUT, Pair, PairSpec};
use crate::{Args, Result};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Our address on the wire to the guest.
    pub(crate) const fn near(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)),
        }
    }

    /// Where the kernel has its address in the GID table: the link-local one comes first.
    pub(crate) const fn far_gid_index(self) -> u32 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }
}

/// The MTU of the link, and the path MTU that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Usual,
    Jumbo,
}

impl Link {
    pub(crate) const ALL: [Self; 2] = [Self::Usual, Self::Jumbo];

    /// Bytes of an IP packet.
    pub(crate) const fn mtu(self) -> u32 {
        match self {
            Self::Usual => 1500,
            Self::Jumbo => 9000,
        }
    }

    pub(crate) const fn path_mtu(self) -> PathMtu {
        match self {
            Self::Usual => PathMtu::B1024,
            Self::Jumbo => PathMtu::B4096,
        }
    }
}

/// How much is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// What takes long only once for each family and each MTU, and with few rounds.
    Short,
    Whole,
    /// Many rounds with the kernel's own tools, and stock programs in all their ways.
    Long,
}

/// Our device, and where the guest is.
pub(crate) struct Lab {
    pub(crate) context: Context,
    pub(crate) guest: IpAddr,
    pub(crate) family: Family,
    pub(crate) link: Link,
    /// How much is to be done.
    pub(crate) form: Form,
    /// Where our drop-in library is, for stock programs.
    pub(crate) library: Option<PathBuf>,
    /// The program `ferroce`, for probes.
    pub(crate) ferroce: Option<PathBuf>,
    /// A reliable connection that cases share as long as they leave it whole.
    shared: Option<Pair>,
}

/// The longest message of most cases.
const SIZE: usize = 128 << 10;

impl Lab {
    pub(crate) fn new(context: Context, link: Link, args: &Args) -> Self {
        let form = match (args.short, args.long) {
            (true, _) => Form::Short,
            (_, true) => Form::Long,
            _ => Form::Whole,
        };
        let (guest, library, ferroce) = (args.guest, args.library.clone(), args.ferroce.clone());
        Self { context, guest, family: Family::V4, link, form, library, ferroce, shared: None }
    }

    /// Works with this family from now on.
    pub(crate) fn switch(&mut self, family: Family) {
        if self.family != family {
            self.forget();
            self.family = family;
        }
    }

    /// Each MTU with one family: where the short form does what takes long.
    pub(crate) fn is_diagonal(&self) -> bool {
        (self.link == Link::Usual) == (self.family == Family::V4)
    }

    /// The shared connection is not whole any more.
    pub(crate) fn forget(&mut self) {
        self.shared = None;
    }

    /// What a pair is like if nothing is special about it.
    pub(crate) const fn spec(&self, service: Service) -> PairSpec {
        PairSpec {
            service,
            near: self.family.near(),
            guest: self.guest,
            far_gid_index: self.family.far_gid_index(),
            mtu: self.link.path_mtu(),
            size: SIZE,
            retry_count: 7,
            timeout: 14,
            near_timeout: NEAR_TIMEOUT,
            wrong_qpn: 0,
        }
    }

    /// A new pair.
    pub(crate) fn pair(&self, service: Service) -> Result<Pair> {
        Pair::new(&self.context, self.spec(service))
    }

    /// The shared connection, made if it is not there.
    pub(crate) fn shared(&mut self) -> Result<&mut Pair> {
        let pair = match self.shared.take() {
            Some(pair) => pair,
            None => self.pair(Service::Rc)?,
        };
        Ok(self.shared.insert(pair))
    }

    /// A conversation for commands in the guest.
    pub(crate) fn far(&self) -> Result<Far> {
        Far::connect(self.guest)
    }

    pub(crate) fn counters(&self) -> DeviceCounters {
        self.context.counters()
    }
}
