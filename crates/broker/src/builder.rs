//! How a broker is described and started.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_verbs::cm::Listener;
use ferroce_verbs::{
    Access, Context, MemoryRegion, PathPolicy, ProtectionDomain, ProviderChoice, devices, open_cards_at,
};

use crate::broker::{Broker, OnChange};
use crate::datagrams::Datagrams;
use crate::error::{BrokerSetupError, StartError};
use crate::handshake::Party;
use crate::hello::MOST_REGIONS;
use crate::keeper::{Common, Keeper};
use crate::members::{Member, Members};
use crate::peer::Peer;
use crate::receiving::Change;
use crate::secret::{Secret, SecretError};
use crate::settings::Settings;

/// A broker that is being described. Only its number and the members must be given.
#[must_use = "nothing happens until `start`"]
pub struct Builder {
    me: u32,
    members: Members,
    lane: u8,
    ring: u32,
    batch: u32,
    max_message: u32,
    patience: Duration,
    deadline: Duration,
    path: Option<PathPolicy>,
    secret: Option<Result<Secret, SecretError>>,
    device: Option<(Context, ProtectionDomain)>,
    exposed: Vec<(u32, Memory)>,
    needed: Vec<(u32, u64)>,
    on_change: Box<OnChange>,
}

enum Memory {
    Region(Arc<MemoryRegion>),
    Allocate(usize),
}

/// Places of a ring at most: with the handshake and work of our own they fit into a queue of the device.
const MOST_PLACES: u32 = 16_384;

/// Bytes of the longest message that can be asked for.
const LONGEST_MESSAGE: u32 = 16 * 1024 * 1024;

impl Builder {
    pub(crate) fn new(me: u32, members: Members) -> Self {
        Self {
            me,
            members,
            lane: 0,
            ring: 128,
            batch: 1,
            max_message: 4096,
            patience: Duration::from_secs(1),
            deadline: Duration::from_secs(30),
            path: None,
            secret: None,
            device: None,
            exposed: Vec::new(),
            needed: Vec::new(),
            on_change: Box::new(|_, _| ()),
        }
    }

    /// Which of several brokers of this member it is: lane `n` of a member talks to lane `n` of all others.
    /// It listens on the member's port plus `n`. A thread with a lane of its own shares no lock with others.
    pub const fn lane(mut self, lane: u8) -> Self {
        self.lane = lane;
        self
    }

    /// Places for work and for messages that have arrived, in each direction and for each member: 128 if
    /// nothing is said.
    pub const fn ring(mut self, places: u32) -> Self {
        self.ring = places;
        self
    }

    /// Requests to one member that are gathered before they reach the device with one doorbell; 1 if nothing
    /// is said. It is never more than the ring. [`Broker::flush`] and a poll that finds nothing do not wait
    /// for more.
    pub const fn batch(mut self, requests: u32) -> Self {
        self.batch = requests;
        self
    }

    /// Bytes of the longest message, the same for all members; 4096 if nothing is said.
    pub const fn max_message(mut self, bytes: u32) -> Self {
        self.max_message = bytes;
        self
    }

    /// After how long a member that does not answer is gone; 1 s if nothing is said. A machine that is kept
    /// from running for this long looks dead to others.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long [`start`](Self::start) waits for the others; 30 s if nothing is said.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// A secret that all members share: a [`Secret`], or the text of one. What does not have it is refused,
    /// and is told nothing but our number. It says what speaks when a connection begins; what is sent later
    /// is not encrypted.
    ///
    /// Only secrets that were drawn are taken, as `ferroce secret` prints them. Whatever else is given,
    /// [`launch`](Self::launch) refuses.
    pub fn secret<S>(mut self, secret: S) -> Self
    where
        S: TryInto<Secret>,
        S::Error: Into<SecretError>,
    {
        self.secret = Some(secret.try_into().map_err(Into::into));
        self
    }

    /// Whether members of this process meet directly.
    pub const fn path(mut self, policy: PathPolicy) -> Self {
        self.path = Some(policy);
        self
    }

    /// A device that is open, and the protection domain to work in: so brokers share regions. If nothing is
    /// said, the broker opens the device that has its address.
    pub fn device(mut self, context: &Context, domain: &ProtectionDomain) -> Self {
        self.device = Some((context.clone(), domain.clone()));
        self
    }

    /// Lets all other members use this region under a number, as far as its access allows.
    pub fn expose(mut self, id: u32, region: &Arc<MemoryRegion>) -> Self {
        self.exposed.push((id, Memory::Region(Arc::clone(region))));
        self
    }

    /// Lets all other members read, write and do atomics in so many new bytes of zeros;
    /// [`Broker::region`] has them.
    pub fn allocate(mut self, id: u32, bytes: usize) -> Self {
        self.exposed.push((id, Memory::Allocate(bytes)));
        self
    }

    /// Refuses members that do not expose at least so many bytes under this number.
    pub fn require(mut self, id: u32, bytes: u64) -> Self {
        self.needed.push((id, bytes));
        self
    }

    /// A function that is called when a member comes or goes, from [`Broker::poll_receives`] and its
    /// relatives: after the last message of a member that goes, and before the first of one that comes. It
    /// may post.
    pub fn on_change(mut self, change: impl Fn(&Broker, &Change) + Send + Sync + 'static) -> Self {
        self.on_change = Box::new(change);
        self
    }

    /// Starts the broker and waits until all other members are there. They may be started in any order.
    ///
    /// # Errors
    /// A wrong setting, a member that does not fit, or which members are missing after the deadline and why.
    pub fn start(self) -> Result<Broker, StartError> {
        let deadline = self.deadline;
        let broker = self.launch()?;
        broker.wait_for_all(deadline)?;
        Ok(broker)
    }

    /// Starts the broker without waiting: members come when they come.
    ///
    /// # Errors
    /// A wrong setting, or what the device does not give.
    pub fn launch(self) -> Result<Broker, StartError> {
        let me = self.members.get(self.me);
        let me =
            me.ok_or_else(|| StartError::NotListed { me: self.me, members: self.members.to_string() })?;
        self.check(me)?;
        let secret = self.secret.transpose()?;
        let settings = Settings {
            me,
            lane: self.lane,
            ring: self.ring,
            batch: self.batch,
            max_message: self.max_message,
            patience: self.patience,
            path: self.path,
        };
        let (context, domain) = match self.device {
            Some(device) => device,
            None => {
                let context = open(me)?;
                let domain = context.protection_domain().map_err(BrokerSetupError::from)?;
                (context, domain)
            }
        };
        let mut exposed = Vec::new();
        for (id, memory) in self.exposed {
            let everything =
                Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            exposed.push((
                id,
                match memory {
                    Memory::Region(region) => region,
                    Memory::Allocate(bytes) => {
                        Arc::new(domain.allocate(bytes, everything).map_err(BrokerSetupError::from)?)
                    }
                },
            ));
        }
        let others = self.members.iter().filter(|member| member.id != me.id);
        let peers: Result<Vec<_>, _> = others.map(|member| Peer::new(member, &domain, &settings)).collect();
        let peers = peers?;
        let datagrams = Datagrams::new(&context, &domain, &settings, peers.len())?;
        let incarnation = u64::from_ne_bytes(context.random_bytes());
        let port = me.address.port() + u16::from(self.lane);
        let listener = Listener::bind(&context, port, 2 * peers.len() + 16);
        let listener = listener.map_err(|error| StartError::Listen { me, port, error: Box::new(error) })?;
        let party = Arc::new(Party {
            context,
            domain,
            settings,
            members: self.members,
            secret,
            incarnation,
            exposed,
            needed: self.needed,
            datagrams: datagrams.address(),
        });
        let common = Common::new(party, peers);
        let keeper = Keeper::start(&common, listener)?;
        Ok(Broker::new(common, keeper, datagrams, self.on_change))
    }

    fn check(&self, me: Member) -> Result<(), StartError> {
        let setting = |what, given: u64, least: u64, most: u64| match (least..=most).contains(&given) {
            true => Ok(()),
            false => Err(StartError::Setting { what, given, least, most }),
        };
        setting("ring", self.ring.into(), 1, MOST_PLACES.into())?;
        setting("batch", self.batch.into(), 1, u64::MAX)?;
        setting("max_message", self.max_message.into(), 1, LONGEST_MESSAGE.into())?;
        let millis = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        setting("patience in milliseconds", millis, 60, 3_600_000)?;
        let most = u64::from(u16::MAX - me.address.port());
        setting("lane", self.lane.into(), 0, most.min(u8::MAX.into()))?;
        setting("regions", self.exposed.len() as u64, 0, MOST_REGIONS as u64)?;
        let mut known = HashSet::new();
        match self.exposed.iter().find(|(id, _)| !known.insert(*id)) {
            Some((region, _)) => Err(StartError::DuplicateRegion { region: *region }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Builder(member {} of {})", self.me, self.members)
    }
}

/// The device that has our address: a soft one that is open to programs, else a card.
fn open(me: Member) -> Result<Context, StartError> {
    let address: IpAddr = me.address.ip();
    let choice = ProviderChoice::from_env().map_err(Box::new)?;
    let soft = if choice == ProviderChoice::System { Vec::new() } else { devices().map_err(Box::new)? };
    for info in soft {
        if info.loopback && address.is_loopback() {
            // Others may be a device of their own.
            return Ok(Context::builder(&info.name).address(address).open().map_err(Box::new)?);
        }
        if info.addresses.contains(&address) {
            return Ok(Context::open(&info.name).map_err(Box::new)?);
        }
    }
    let card = open_cards_at(address).map_err(Box::new)?.into_iter().next();
    card.ok_or(StartError::NoDevice { me })
}
