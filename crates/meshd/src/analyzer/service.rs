//! The calls of the analyzer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Shared;
use crate::clock;
use crate::ledger::Mark;
use crate::proto::v1;
use crate::proto::v1::report_request::What;
use crate::tls::Peer;

/// How long a stream may take to begin, and an answer to be taken.
const STUCK: Duration = Duration::from_secs(20);

/// Answers to one agent that wait until something is kept.
const ANSWERS: usize = 64;

#[derive(Debug)]
pub(super) struct AnalysisService {
    pub(super) shared: Arc<Shared>,
}

impl AnalysisService {
    /// One that stands by knows nothing.
    fn leads(&self) -> Result<(), Status> {
        if *self.shared.leads.borrow() {
            return Ok(());
        }
        let why = self.shared.store_trouble();
        Err(Status::unavailable(format!("this analyzer stands by: {why}")))
    }
}

#[tonic::async_trait]
impl v1::analysis_server::Analysis for AnalysisService {
    type ReportStream = ReceiverStream<Result<v1::ReportReply, Status>>;

    async fn report(
        &self,
        request: Request<Streaming<v1::ReportRequest>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let mut leads = self.shared.leads.subscribe();
        self.leads()?;
        let Ok(place) = Arc::clone(&self.shared.streams).try_acquire_owned() else {
            self.shared.assembly().counters.streams_refused += 1;
            return Err(Status::resource_exhausted("there are as many streams as there may be; try later"));
        };
        let peer = Peer::of(&request)?;
        let (to, from) = mpsc::channel(8);
        let (said, answers) = mpsc::channel(ANSWERS);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let _place = place;
            let taking = async {
                let taken = take(&shared, &peer, request.into_inner(), &said).await;
                drop(said);
                taken
            };
            let both = async {
                let (taken, answered) = tokio::join!(taking, answer(&shared, answers, &to));
                answered.and(taken)
            };
            let done = tokio::select! {
                biased;
                _ = leads.changed() => Err(Status::unavailable("this analyzer leads no more")),
                done = both => done,
            };
            if let Err(status) = done {
                let _ = to.send_timeout(Err(status), STUCK).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(from)))
    }

    async fn findings(&self, _: Request<v1::FindingsRequest>) -> Result<Response<v1::FindingsReply>, Status> {
        self.leads()?;
        Ok(Response::new(self.shared.assembly().findings()))
    }

    async fn tallies(&self, _: Request<v1::TalliesRequest>) -> Result<Response<v1::TalliesReply>, Status> {
        self.leads()?;
        Ok(Response::new(self.shared.assembly().tallies()))
    }
}

/// What is to be said to an agent, once everything up to a generation is kept.
struct Answer {
    generation: u64,
    settled: Mark,
    refusal: Option<String>,
}

/// A stream of windows, from its hello to its end.
async fn take(
    shared: &Shared,
    peer: &Peer,
    mut messages: Streaming<v1::ReportRequest>,
    said: &mpsc::Sender<Answer>,
) -> Result<(), Status> {
    let first = tokio::time::timeout(STUCK, messages.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no hello came"))??;
    let Some(v1::ReportRequest { what: Some(What::Hello(hello)) }) = first else {
        shared.assembly().counters.streams_refused += 1;
        return Err(Status::invalid_argument("a stream of windows begins with a hello"));
    };
    peer.may_be(&hello.agent).inspect_err(|_| shared.assembly().counters.foreign_names += 1)?;
    let begun = shared.assembly().hello(&hello.agent, clock::unix_nanos());
    let settled = begun.map_err(Status::failed_precondition)?;
    let stuck = |_| Status::deadline_exceeded("answers are not taken");
    said.send(Answer { generation: 0, settled, refusal: None }).await.map_err(stuck)?;
    while let Some(message) = messages.message().await? {
        let Some(What::Window(window)) = message.what else {
            return Err(Status::invalid_argument("after its hello, a stream has windows only"));
        };
        let answer = {
            let mut assembly = shared.assembly();
            let (settled, refusal) = assembly.take(&hello.agent, &window, clock::unix_nanos());
            Answer { generation: assembly.generation(), settled, refusal }
        };
        shared.news.notify_one();
        said.send(answer).await.map_err(stuck)?;
    }
    Ok(())
}

/// Answers an agent: what it is told to be settled is kept.
async fn answer(
    shared: &Shared,
    mut answers: mpsc::Receiver<Answer>,
    to: &mpsc::Sender<Result<v1::ReportReply, Status>>,
) -> Result<(), Status> {
    let mut kept = shared.kept.subscribe();
    while let Some(Answer { generation, settled, refusal }) = answers.recv().await {
        if shared.config.store.is_some() {
            let waiting = tokio::time::timeout(STUCK, kept.wait_for(|kept| *kept >= generation)).await;
            if !matches!(waiting, Ok(Ok(_))) {
                // The agent has it still, and comes back.
                return Err(Status::unavailable("what agents tell cannot be kept at the moment"));
            }
        }
        let reply = v1::ReportReply {
            epoch: settled.epoch,
            number: settled.number,
            refusal: refusal.unwrap_or_default(),
        };
        let sent = to.send_timeout(Ok(reply), STUCK).await;
        sent.map_err(|_| Status::deadline_exceeded("answers are not taken"))?;
    }
    Ok(())
}
