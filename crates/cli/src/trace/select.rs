//! Which work is looked at, as the command line says it.

use ferroce_trace::{Filter, OpKind, status_name};
use ferroce_transport::Status;
use ferroce_wire::Qpn;

/// Which work is looked at.
#[derive(Debug, clap::Args)]
pub(super) struct Select {
    /// Only work of this queue pair: 17 or 0x11
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair)]
    qp: Option<Qpn>,

    /// Only work with this work request ID: 17 or 0x11
    #[arg(long, value_name = "ID", value_parser = number)]
    id: Option<u64>,

    /// Only work that ended like this: success, remote-access, retry-exceeded, flushed and so on
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<Status>,

    /// Only work of these kinds: send, write, read, atomic, window, receive
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    op: Vec<OpKind>,

    /// Only work that was not over at this time: 1.5, 300ms or 20us after the record began
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<u64>,

    /// Only work that was posted by this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<u64>,

    /// Only work that did not end well
    #[arg(long)]
    errors: bool,
}

impl Select {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            qpn: self.qp,
            id: self.id,
            status: self.status,
            kinds: self.op.clone(),
            from: self.from,
            to: self.to,
            only_errors: self.errors,
        }
    }
}

/// Reads a number, decimal or hexadecimal.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = hexadecimal.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    number.map_err(|_| "expected a number such as 17 or 0x11".into())
}

pub(super) fn queue_pair(text: &str) -> Result<Qpn, String> {
    match number(text)? {
        number @ 0..=0xff_ffff => Ok(Qpn::new(u32::try_from(number).unwrap_or(0))),
        _ => Err("queue pair numbers have 24 bits, at most 0xffffff".into()),
    }
}

fn status(text: &str) -> Result<Status, String> {
    let found = Status::ALL.into_iter().find(|status| status_name(*status) == text);
    found.ok_or_else(|| format!("expected one of {}", Status::ALL.map(status_name).join(", ")))
}

fn kind(text: &str) -> Result<OpKind, String> {
    let found = OpKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("expected one of {}", OpKind::ALL.map(OpKind::name).join(", ")))
}

/// Reads a time as nanoseconds.
pub(super) fn time(text: &str) -> Result<u64, String> {
    let wrong = || "expected a time such as 1.5 (seconds), 300ms, 20us or 1000ns".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return Err(wrong()),
    };
    let value: f64 = digits.parse().map_err(|_| wrong())?;
    let nanos = value * unit;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked first")]
    if (0.0..1e18).contains(&nanos) { Ok(nanos.round() as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_read() {
        assert_eq!((number("17"), number("0x11")), (Ok(17), Ok(17)));
        assert_eq!(queue_pair("0xffffff"), Ok(Qpn::new(0xff_ffff)));
        assert!(queue_pair("0x1000000").unwrap_err().contains("24 bits"));
        assert_eq!(status("remote-access"), Ok(Status::RemoteAccess));
        assert!(status("bad").unwrap_err().contains("retry-exceeded"));
        assert_eq!(kind("atomic"), Ok(OpKind::Atomic));
        assert!(kind("x").unwrap_err().contains("receive"));
        assert_eq!(
            [time("1.5"), time("2s"), time("300ms"), time("20us"), time("7ns")],
            [Ok(1_500_000_000), Ok(2_000_000_000), Ok(300_000_000), Ok(20_000), Ok(7)]
        );
        for wrong in ["", "x", "1h", "-1", "nan", "inf", "1e30"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
