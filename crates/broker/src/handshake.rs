//! How two members come together: which one asks, which one answers, and what they check.
//!
//! The member with the larger number asks, so there is one connection and no race for it. What is said is in
//! [`hello`](crate::hello). Until the other side has shown that it belongs here, its queue pair may not touch
//! our memory, and it gets to know nothing but our number.

use std::sync::Arc;
use std::time::Duration;

use ferroce_verbs::cm::{self, CmError, CmOptions, ConnectRequest, Established, RejectReason};
use ferroce_verbs::{Access, Completion, ConnectOptions, Context, MemoryRegion, ProtectionDomain, Status};

use crate::conn::{Conn, Half};
use crate::error::{BrokerSetupError, MemberRefusal};
use crate::hello::{Exposed, Greeting, Hello, Kind, Rejection, VERSION};
use crate::members::{Member, Members};
use crate::proof::{PROOF, Proofs, Step};
use crate::secret::Secret;
use crate::settings::Settings;

/// All that a handshake needs.
pub(crate) struct Party {
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    pub(crate) settings: Settings,
    pub(crate) members: Members,
    pub(crate) secret: Option<Secret>,
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
    pub(crate) async fn ask(self: Arc<Self>, member: Member) -> Result<Conn, MemberRefusal> {
        // It hears a hello.
        let half = self.half(1)?;
        let asked = self.greeting(member.id);
        let mut address = member.address;
        address.set_port(address.port().wrapping_add(u16::from(self.settings.lane)));
        // What answers from another address than this is not heard: the connection manager takes the messages
        // of a connection from its peer alone.
        let connecting = cm::start_connect(address, &half.qp, &self.cm_options(asked.emit().to_vec()))?;
        let established = connecting.await.map_err(|error| self.read_rejection(error, &asked))?;
        let answered = Greeting::parse(established.private_data())?;
        self.check_greeting(member, &answered)?;
        let proofs = Proofs::new(self.secret.as_ref(), &asked, &answered);
        // One side must show first that it knows the secret: the one that chose the other.
        half.send(&proofs.seal(Step::Asking, &[], &[Kind::Proof as u8])).await?;
        let theirs = self.hear(&half, 1, &proofs, Step::Answering, &[], member.id).await?;
        let (_, hello) = read_hello(&theirs)?;
        let ring = self.check(&hello).and_then(|()| Ok(half.open(&self.domain, &self.settings)?));
        // It is told of us in any case, so that both sides find out what does not fit.
        let kind = if ring.is_ok() { Kind::Ready } else { Kind::Hello };
        let sent = half.send(&proofs.seal(Step::Confirming, &theirs, &self.hello(kind, &half))).await;
        // It may have hung up as soon as it found the same.
        let ring = ring?;
        sent?;
        Ok(half.connect(ring, established, hello, answered.incarnation))
    }

    /// The member that a request is from, or why it is rejected.
    pub(crate) fn read_request(
        &self,
        request: &ConnectRequest,
    ) -> Result<(Member, Greeting), (Option<Member>, MemberRefusal)> {
        let bytes = request.private_data();
        let greeting = Greeting::parse(bytes).map_err(|refusal| (self.guess(request), refusal))?;
        let member = self.members.get(greeting.from);
        let me = self.settings.me;
        let Some(member) = member.filter(|member| member.id != me.id) else {
            let member = Member { id: greeting.from, address: request.peer() };
            return Err((None, MemberRefusal::Unlisted { member, here: false }));
        };
        let refused = |refusal| Err((Some(member), refusal));
        // Its port is of no account: any number of programs ask from one address, each from a port of its
        // own. Honest members ask from here, since their queue pairs have their address on the list
        // (`Half::new`).
        let from = request.peer().ip().to_canonical();
        if from != member.address.ip() {
            return refused(MemberRefusal::ForeignAddress { member, from });
        }
        match self.check_greeting(member, &greeting) {
            Ok(()) => Ok((member, greeting)),
            Err(refusal) => refused(refusal),
        }
    }

    /// Whether a greeting is from this member, to us, on our lane, and with a secret if we have one.
    fn check_greeting(&self, member: Member, greeting: &Greeting) -> Result<(), MemberRefusal> {
        let Settings { me, lane, .. } = &self.settings;
        if greeting.from != member.id {
            return Err(MemberRefusal::OtherMember { asked: member.id, found: greeting.from });
        }
        if greeting.to != me.id {
            return Err(MemberRefusal::OtherMember { asked: greeting.to, found: me.id });
        }
        if greeting.lane != *lane {
            return Err(MemberRefusal::Lane { here: *lane, there: greeting.lane });
        }
        let (here, there) = (self.secret.is_some(), greeting.has_secret);
        if here != there {
            return Err(MemberRefusal::SecretMissing { here, there });
        }
        Ok(())
    }

    /// The member that asks from this address, if there is one: for a message that says no more.
    fn guess(&self, request: &ConnectRequest) -> Option<Member> {
        self.members.iter().find(|member| member.address.ip() == request.peer().ip())
    }

    /// Rejects a request, and says why.
    pub(crate) fn reject(&self, request: ConnectRequest, refusal: &MemberRefusal) {
        let rejection = match *refusal {
            MemberRefusal::Version { here, .. } => Rejection::Version { here },
            MemberRefusal::SecretMissing { here, .. } => Rejection::Secret { here },
            MemberRefusal::OtherMember { found, .. } => Rejection::OtherMember { here: found },
            MemberRefusal::Lane { here, .. } => Rejection::Lane { here },
            MemberRefusal::Unlisted { .. } => Rejection::Unlisted,
            MemberRefusal::ForeignAddress { from, .. } => Rejection::ForeignAddress { from },
            // It is told that this passes.
            MemberRefusal::TooMany { .. } => {
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
    ) -> Result<Conn, MemberRefusal> {
        // It hears a proof, and then a hello.
        let half = self.half(2)?;
        let answered = self.greeting(member.id);
        let proofs = Proofs::new(self.secret.as_ref(), &asked, &answered);
        let established: Established =
            request.start_accept(&half.qp, &self.cm_options(answered.emit().to_vec()))?.await?;
        let proof = self.hear(&half, 1, &proofs, Step::Asking, &[], member.id).await?;
        if proof != [Kind::Proof as u8] {
            return Err(MemberRefusal::Malformed("its kind"));
        }
        let ring = half.open(&self.domain, &self.settings)?;
        let ours = self.hello(Kind::Hello, &half);
        half.send(&proofs.seal(Step::Answering, &[], &ours)).await?;
        let theirs = self.hear(&half, 2, &proofs, Step::Confirming, &ours, member.id).await?;
        let (kind, hello) = read_hello(&theirs)?;
        self.check(&hello)?;
        match kind {
            Kind::Ready => Ok(half.connect(ring, established, hello, asked.incarnation)),
            // It is not content, though we would be.
            _ => Err(MemberRefusal::HungUp),
        }
    }

    fn half(&self, frames: u32) -> Result<Half, BrokerSetupError> {
        Half::new(&self.context, &self.domain, &self.settings, frames)
    }

    fn greeting(&self, to: u32) -> Greeting {
        Greeting {
            version: VERSION,
            has_secret: self.secret.is_some(),
            lane: self.settings.lane,
            from: self.settings.me.id,
            to,
            incarnation: self.incarnation,
            nonce: self.context.random_bytes(),
        }
    }

    fn cm_options(&self, private_data: Vec<u8>) -> CmOptions {
        // No peer touches our memory before it has shown that it may.
        let qp = ConnectOptions { access: Access::empty(), ..self.settings.connect_options() };
        CmOptions {
            private_data,
            timeout: ASKING_TIME,
            response_timeout: ASK_AGAIN,
            qp,
            ..CmOptions::default()
        }
    }

    fn read_rejection(&self, error: CmError, asked: &Greeting) -> MemberRefusal {
        match error {
            CmError::Refused { reason: RejectReason::CONSUMER, private_data, .. } => {
                Rejection::read(&private_data, asked, self.settings.me)
            }
            error => MemberRefusal::Unreached(error),
        }
    }

    /// A frame with all that we tell of ourselves.
    fn hello(&self, kind: Kind, half: &Half) -> Vec<u8> {
        let exposed = |(id, region): &(u32, Arc<MemoryRegion>)| Exposed {
            id: *id,
            remote: region.remote(),
            access: region.access(),
        };
        let hello = Hello {
            max_message: self.settings.max_message,
            room: self.settings.ring,
            credit: half.credit.remote(),
            datagrams: self.datagrams,
            members: self.members.iter().collect(),
            regions: self.exposed.iter().map(exposed).collect(),
        };
        [&[kind as u8], &hello.emit()[..]].concat()
    }

    /// The next frame without its proof, from a member that knows the secret; it is the `place`th.
    async fn hear(
        &self,
        half: &Half,
        place: usize,
        proofs: &Proofs<'_>,
        step: Step,
        before: &[u8],
        there: u32,
    ) -> Result<Vec<u8>, MemberRefusal> {
        let wrong_secret = MemberRefusal::WrongSecret { here: self.settings.me.id, there };
        let frame = half.next_frame(place).await?;
        if frame == [Kind::WrongSecret as u8] {
            return Err(wrong_secret);
        }
        let split = frame.len().checked_sub(PROOF).map(|body| frame.split_at(body));
        let (said, proof) = split.ok_or(MemberRefusal::Malformed("its length"))?;
        if proofs.verify(step, before, said, proof) {
            return Ok(said.to_vec());
        }
        if step != Step::Confirming {
            // The other side waits for a frame, and may as well know. After its last one it would take this
            // for a message.
            let _ = half.send(&[Kind::WrongSecret as u8]).await;
        }
        Err(wrong_secret)
    }

    /// Whether it has what we need, and knows the same mesh. Both sides find the same differences.
    fn check(&self, peer: &Hello) -> Result<(), MemberRefusal> {
        for here in self.members.iter() {
            match peer.members.iter().find(|there| there.id == here.id) {
                None => return Err(MemberRefusal::Unlisted { member: here, here: true }),
                Some(there) if there.address != here.address => {
                    return Err(MemberRefusal::OtherAddress { here, there: *there });
                }
                Some(_) => {}
            }
        }
        if let Some(member) = peer.members.iter().find(|there| self.members.get(there.id).is_none()) {
            return Err(MemberRefusal::Unlisted { member: *member, here: false });
        }
        let (here, there) = (self.settings.max_message, peer.max_message);
        if here != there {
            return Err(MemberRefusal::MaxMessage { here, there });
        }
        for &(region, needed) in &self.needed {
            let exposed = peer.regions.iter().find(|exposed| exposed.id == region);
            let there = exposed.map_or(0, |exposed| exposed.remote.length);
            if there < needed {
                return Err(MemberRefusal::RegionTooSmall { region, needed, there });
            }
        }
        Ok(())
    }
}

/// What a frame tells of a member, and whether the member is content.
fn read_hello(frame: &[u8]) -> Result<(Kind, Hello), MemberRefusal> {
    let kind = frame.first().copied().and_then(Kind::from_byte);
    let kind = kind.filter(|kind| matches!(kind, Kind::Hello | Kind::Ready));
    let kind = kind.ok_or(MemberRefusal::Malformed("its kind"))?;
    let hello = Hello::parse(&frame[1..])?;
    if hello.room == 0 || hello.credit.length < 8 || !hello.credit.address.is_multiple_of(8) {
        return Err(MemberRefusal::Malformed("its room"));
    }
    Ok((kind, hello))
}

impl Half {
    /// Sends a frame, and waits until it has arrived.
    async fn send(&self, frame: &[u8]) -> Result<(), MemberRefusal> {
        self.frames.write_at(0, frame).map_err(BrokerSetupError::from)?;
        self.qp.send(self.frames.slice(..frame.len())).signaled().post().map_err(BrokerSetupError::from)?;
        done(self.send_queue.next().await.ok()).map(drop)
    }

    /// The next frame; it is the `place`th.
    async fn next_frame(&self, place: usize) -> Result<Vec<u8>, MemberRefusal> {
        let completion = done(self.receive_queue.next().await.ok())?;
        let start = place * Hello::LONGEST;
        let frame = self.frames.to_vec(start..start + completion.byte_len as usize);
        Ok(frame.map_err(BrokerSetupError::from)?)
    }
}

fn done(completion: Option<Completion>) -> Result<Completion, MemberRefusal> {
    completion.filter(|completion| completion.status == Status::Success).ok_or(MemberRefusal::HungUp)
}
