//! The options of SnowRDMA, one by one, as this library has them: they belong to one connection, and none is global.

use std::time::Duration;

use ferroce::endpoint::{Options, Polling, Priority};

use crate::plan::LONGEST;

/// What can be chosen on the command line, the same for server and clients.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// What messages and their order are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How waiting threads pass their time
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Waits::Adaptive)]
    polling: Waits,
    /// Kilobits that each side sends in a second, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// One of how many small messages is signalled
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=64))]
    signal_every: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Waits {
    /// They sleep until something happens
    Event,
    /// They look again and again
    Busy,
    /// They look for a moment, then sleep
    Adaptive,
}

impl Settings {
    pub(crate) fn polling(&self) -> Polling {
        match self.polling {
            Waits::Event => Polling::Event,
            Waits::Busy => Polling::Busy,
            Waits::Adaptive => Polling::Adaptive(Duration::from_micros(50)),
        }
    }

    pub(crate) fn options(&self) -> Options {
        let options = Options::new()
            .backlog(128)
            .connect_timeout(Duration::from_secs(10))
            .name_timeout(Duration::from_secs(1))
            .inline(0)
            .retries(7)
            .rnr_retries(7)
            .max_reads(16)
            .receive_depth(1024)
            // Room for all that the server may begin for a client (`SLOTS`), and for its answers.
            .send_depth(128)
            .signal_every(self.signal_every)
            .max_message(LONGEST as u64)
            .polling(self.polling())
            .priority(Priority::Normal)
            // A client that was killed is asked for soon.
            .keepalive(Some(Duration::from_millis(500)));
        match self.rate_limit {
            None => options.no_rate_limit(),
            Some(limit) => options.rate_limit(limit),
        }
    }

    /// As arguments of another process.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let polling = format!("{:?}", self.polling).to_lowercase();
        let mut args = vec![
            format!("--seed={}", self.seed),
            format!("--polling={polling}"),
            format!("--signal-every={}", self.signal_every),
        ];
        args.extend(self.rate_limit.map(|limit| format!("--rate-limit={limit}")));
        args
    }
}
