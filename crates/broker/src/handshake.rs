//! How two members come together: who asks, who answers, and what they check.
//!
//! The member with the larger number asks, so there is one connection and no race for it. What is said is in
//! [`hello`](crate::hello). Until the other side has shown that it belongs here, its queue pair may not touch our
//! memory, and it gets to know nothing but our number.

use std::sync::Arc;
use std::time::Duration;

use ferroce_device::Nic;
use ferroce_verbs::cm::{self, CmError, CmOptions, ConnectRequest, Established, RejectReason};
use ferroce_verbs::{Access, Completion, ConnectOptions, Context, MemoryRegion, ProtectionDomain, Status};

use crate::conn::{Conn, Half};
use crate::error::{Refusal, SetupError};
use crate::hello::{
    ACCEPTING, ANSWERING, ASKING, Exposed, Greeting, Hello, Kind, Rejection, VERSION, split_proof,
};
use crate::members::{Member, Members};
use crate::secret::{PROOF, Secret};
use crate::settings::Settings;

/// All that a handshake needs.
pub(crate) struct Party {
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    pub(crate) settings: Settings,
    pub(crate) members: Members,
    pub(crate) secret: Secret,
    pub(crate) incarnation: u64,
    /// What we expose, by its number.
    pub(crate) exposed: Vec<(u32, Arc<MemoryRegion>)>,
    /// Regions that every other member must expose, and how large they must be.
    pub(crate) needed: Vec<(u32, u64)>,
    /// The queue pair for datagrams, and its key.
    pub(crate) datagrams: (u32, u32),
}

/// How long one attempt to be accepted may take.
const ASKING_TIME: Duration = Duration::from_millis(1500);

/// How long to wait for an answer before asking again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

impl Party {
    /// Asks a member with a smaller number.
    pub(crate) async fn ask(self: Arc<Self>, member: Member) -> Result<Conn, Refusal> {
        // It hears a hello.
        let half = self.half(1)?;
        let asked = self.greeting(member.id);
        let mut address = member.address;
        address.set_port(address.port().wrapping_add(u16::from(self.settings.lane)));
        // What answers from another address than this is not heard: the connection manager takes the messages of a
        // connection from its peer alone.
        let connecting = cm::start_connect(address, &half.qp, &self.cm_options(asked.emit().to_vec()))?;
        let established = connecting.await.map_err(|error| self.read_rejection(error, &asked))?;
        let (answer, proof) = established
            .private_data()
            .split_at_checked(Greeting::LEN)
            .and_then(|(greeting, rest)| Some((greeting, rest.get(..PROOF)?)))
            .ok_or(Refusal::NoBroker)?;
        let answered = Greeting::parse(answer)?;
        if answered.from != member.id {
            return Err(Refusal::OtherMember { asked: member.id, found: answered.from });
        }
        let said = [asked.emit(), answered.emit()].concat();
        if !self.secret.verify(&[ACCEPTING, &said], proof) {
            // Said for the log of the other side only.
            let _ = half.send(Kind::WrongSecret, &[]).await;
            return Err(Refusal::WrongSecret { here: asked.from, there: member.id });
        }
        let ring = half.open(&self.domain, &self.settings)?;
        let hello = self.hello(&half).emit();
        let proof = self.secret.proof(&[ASKING, &said, &hello]);
        half.send(Kind::Hello, &[&hello[..], &proof].concat()).await.map_err(|_| Refusal::HungUp)?;
        let frame = half.next_frame(1).await?;
        let hello = self.judge(&frame, ANSWERING, &said, member.id)?;
        self.check(&hello)?;
        half.send(Kind::Ready, &[]).await.map_err(|_| Refusal::HungUp)?;
        Ok(half.connect(ring, established, hello, answered.incarnation))
    }

    /// Whom a request is from, or why it is rejected.
    pub(crate) fn read_request(
        &self,
        request: &ConnectRequest,
    ) -> Result<(Member, Greeting), (Option<Member>, Refusal)> {
        let bytes = request.private_data();
        let greeting = Greeting::parse(bytes).map_err(|refusal| (self.guess(request), refusal))?;
        let member = self.members.get(greeting.from);
        let Settings { me, lane, .. } = &self.settings;
        let Some(member) = member.filter(|member| member.id != me.id) else {
            let member = Member { id: greeting.from, address: request.peer() };
            return Err((None, Refusal::Unlisted { member, here: false }));
        };
        let refused = |refusal| Err((Some(member), refusal));
        // Its port is of no account: any number of programs ask from one address, each from a port of its own. Honest
        // members ask from here, since their queue pairs have their address on the list (`Half::new`).
        let from = request.peer().ip().to_canonical();
        if from != member.address.ip().to_canonical() {
            return refused(Refusal::ForeignAddress { member, from });
        }
        if greeting.to != me.id {
            return refused(Refusal::OtherMember { asked: greeting.to, found: me.id });
        }
        if greeting.lane != *lane {
            return refused(Refusal::Lane { here: *lane, there: greeting.lane });
        }
        let (here, there) = (self.secret.is_set(), greeting.has_secret);
        if here != there {
            return refused(Refusal::SecretMissing { here, there });
        }
        Ok((member, greeting))
    }

    /// The member that asks from this address, if there is one: for a message that says no more.
    fn guess(&self, request: &ConnectRequest) -> Option<Member> {
        self.members.iter().find(|member| member.address.ip() == request.peer().ip())
    }

    /// Rejects a request, and says why.
    pub(crate) fn reject(&self, request: ConnectRequest, refusal: &Refusal) {
        let rejection = match *refusal {
            Refusal::Version { here, .. } => Rejection::Version { here },
            Refusal::SecretMissing { here, .. } => Rejection::Secret { here },
            Refusal::OtherMember { found, .. } => Rejection::OtherMember { here: found },
            Refusal::Lane { here, .. } => Rejection::Lane { here },
            Refusal::Unlisted { .. } => Rejection::Unlisted,
            Refusal::ForeignAddress { from, .. } => Rejection::ForeignAddress { from },
            // It is told that this passes.
            Refusal::TooMany { .. } => {
                let _ = request.reject_with(RejectReason::NO_RESOURCES, &[]);
                return;
            }
            // Nothing that would understand it.
            _ => return drop(request),
        };
        // If the peer has given up meanwhile, that is as good.
        let _ = request.reject(&rejection.emit());
    }

    /// Answers a member with a larger number.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: ConnectRequest,
        member: Member,
        asked: Greeting,
    ) -> Result<Conn, Refusal> {
        // It hears a hello, and that the other side is ready.
        let half = self.half(2)?;
        let answered = self.greeting(member.id);
        let said = [asked.emit(), answered.emit()].concat();
        let proof = self.secret.proof(&[ACCEPTING, &said]);
        let private_data = [&answered.emit()[..], &proof].concat();
        let established: Established =
            request.start_accept(&half.qp, &self.cm_options(private_data))?.await?;
        let frame = half.next_frame(1).await?;
        let hello = self.judge(&frame, ASKING, &said, member.id)?;
        let ring = half.open(&self.domain, &self.settings)?;
        let ours = self.hello(&half).emit();
        let proof = self.secret.proof(&[ANSWERING, &said, &ours]);
        half.send(Kind::Hello, &[&ours[..], &proof].concat()).await.map_err(|_| Refusal::HungUp)?;
        // Checked only now, so that both sides find out.
        self.check(&hello)?;
        match Kind::of(&half.next_frame(2).await?) {
            Some((Kind::Ready, _)) => Ok(half.connect(ring, established, hello, asked.incarnation)),
            _ => Err(Refusal::Malformed("no word that it is ready")),
        }
    }

    fn half(&self, frames: u32) -> Result<Half, SetupError> {
        Half::new(&self.context, &self.domain, &self.settings, frames)
    }

    fn greeting(&self, to: u32) -> Greeting {
        let nic = self.context.as_device();
        Greeting {
            version: VERSION,
            has_secret: self.secret.is_set(),
            lane: self.settings.lane,
            from: self.settings.me.id,
            to,
            incarnation: self.incarnation,
            nonce: random(nic),
        }
    }

    fn cm_options(&self, private_data: Vec<u8>) -> CmOptions {
        // Nobody touches our memory before it has shown that it may.
        let qp = ConnectOptions { access: Access::empty(), ..self.settings.connect_options() };
        CmOptions {
            private_data,
            timeout: ASKING_TIME,
            response_timeout: ASK_AGAIN,
            qp,
            ..CmOptions::default()
        }
    }

    fn read_rejection(&self, error: CmError, asked: &Greeting) -> Refusal {
        match error {
            CmError::Refused { reason: RejectReason::CONSUMER, private_data, .. } => {
                Rejection::read(&private_data, asked, self.settings.me)
            }
            error => Refusal::Unreached(error),
        }
    }

    fn hello(&self, half: &Half) -> Hello {
        let exposed = |(id, region): &(u32, Arc<MemoryRegion>)| Exposed {
            id: *id,
            remote: region.remote(),
            access: region.access(),
        };
        Hello {
            max_message: self.settings.max_message,
            room: self.settings.ring,
            credit: half.credit.remote(),
            datagrams: self.datagrams,
            members: self.members.iter().collect(),
            regions: self.exposed.iter().map(exposed).collect(),
        }
    }

    /// A frame with a hello that somebody who knows the secret has said.
    fn judge(&self, frame: &[u8], words: &[u8], said: &[u8], there: u32) -> Result<Hello, Refusal> {
        let wrong_secret = Refusal::WrongSecret { here: self.settings.me.id, there };
        let body = match Kind::of(frame) {
            Some((Kind::Hello, body)) => body,
            Some((Kind::WrongSecret, _)) => return Err(wrong_secret),
            _ => return Err(Refusal::Malformed("its kind")),
        };
        let (body, proof) = split_proof(body).ok_or(Refusal::Malformed("its length"))?;
        if !self.secret.verify(&[words, said, body], proof) {
            return Err(wrong_secret);
        }
        let hello = Hello::parse(body)?;
        if hello.room == 0 || hello.credit.length < 8 || !hello.credit.address.is_multiple_of(8) {
            return Err(Refusal::Malformed("its room"));
        }
        Ok(hello)
    }

    /// Whether it has what we need, and knows the same mesh. Both sides find the same differences.
    fn check(&self, peer: &Hello) -> Result<(), Refusal> {
        for here in self.members.iter() {
            match peer.members.iter().find(|there| there.id == here.id) {
                None => return Err(Refusal::Unlisted { member: here, here: true }),
                Some(there) if there.address != here.address => {
                    return Err(Refusal::OtherAddress { here, there: *there });
                }
                Some(_) => {}
            }
        }
        if let Some(member) = peer.members.iter().find(|there| self.members.get(there.id).is_none()) {
            return Err(Refusal::Unlisted { member: *member, here: false });
        }
        let (here, there) = (self.settings.max_message, peer.max_message);
        if here != there {
            return Err(Refusal::MaxMessage { here, there });
        }
        for &(region, needed) in &self.needed {
            let exposed = peer.regions.iter().find(|exposed| exposed.id == region);
            let there = exposed.map_or(0, |exposed| exposed.remote.length);
            if there < needed {
                return Err(Refusal::RegionTooSmall { region, needed, there });
            }
        }
        Ok(())
    }
}

impl Kind {
    /// The kind of a frame, and the rest of it.
    fn of(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, body) = frame.split_first()?;
        Some((Self::from_byte(*kind)?, body))
    }
}

impl Half {
    /// Sends a frame, and waits until it has arrived.
    async fn send(&self, kind: Kind, body: &[u8]) -> Result<(), Refusal> {
        let frame = [&[kind as u8], body].concat();
        self.frames.write_at(0, &frame).map_err(SetupError::from)?;
        self.qp.send(self.frames.slice(..frame.len())).signaled().post().map_err(SetupError::from)?;
        done(self.send_queue.next().await.ok()).map(drop)
    }

    /// The next frame; it is the `place`th.
    async fn next_frame(&self, place: usize) -> Result<Vec<u8>, Refusal> {
        let completion = done(self.receive_queue.next().await.ok())?;
        let start = place * Hello::LONGEST;
        let frame = self.frames.to_vec(start..start + completion.byte_len as usize);
        Ok(frame.map_err(SetupError::from)?)
    }
}

fn done(completion: Option<Completion>) -> Result<Completion, Refusal> {
    completion.filter(|completion| completion.status == Status::Success).ok_or(Refusal::HungUp)
}

pub(crate) fn random(nic: &Nic) -> [u8; 16] {
    let mut bytes = [0; 16];
    for part in bytes.chunks_exact_mut(4) {
        part.copy_from_slice(&nic.random_u32().to_be_bytes());
    }
    bytes
}
