//! What is wrong with a certificate, in plain words.

use thiserror::Error;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

/// Why a certificate is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// Its time is over.
    #[error("it expired {} ago", span(*seconds))]
    Expired {
        /// For so long.
        seconds: u64,
    },
    /// Its time has not come.
    #[error("it is not valid before {} from now; is the clock right?", span(*seconds))]
    NotYet {
        /// For so long.
        seconds: u64,
    },
    /// Another CA made it.
    #[error("it was made by another CA")]
    OtherCa,
    /// It is another server's.
    #[error("it is for {}, not for {expected}", list(presented))]
    OtherName {
        /// The name or address that it should carry.
        expected: String,
        /// Those that it carries.
        presented: Vec<String>,
    },
    /// It is not for clients and servers.
    #[error("it was not made for this use")]
    Purpose,
    /// There is none.
    #[error("none was shown")]
    Missing,
    /// It is none, or one of a kind that is not known.
    #[error("it cannot be read")]
    Unreadable,
}

impl CertificateProblem {
    /// What a library says of a certificate; none if it speaks of something else.
    pub(super) fn of(error: &TlsError) -> Option<Self> {
        Some(match error {
            TlsError::InvalidCertificate(error) => Self::of_certificate(error),
            TlsError::NoCertificatesPresented => Self::Missing,
            _ => return None,
        })
    }

    /// What the other end says of our certificate; none if it speaks of something else.
    pub(super) const fn of_alert(alert: AlertDescription) -> Option<Self> {
        Some(match alert {
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => Self::Missing,
            // The other end knows for how long.
            AlertDescription::CertificateExpired => Self::Expired { seconds: 0 },
            AlertDescription::UnknownCA | AlertDescription::DecryptError => Self::OtherCa,
            AlertDescription::UnsupportedCertificate => Self::Purpose,
            AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => Self::Unreadable,
            _ => return None,
        })
    }

    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            E::Expired => Self::Expired { seconds: 0 },
            E::ExpiredContext { time, not_after } => {
                Self::Expired { seconds: time.as_secs().saturating_sub(not_after.as_secs()) }
            }
            E::NotValidYet => Self::NotYet { seconds: 0 },
            E::NotValidYetContext { time, not_before } => {
                Self::NotYet { seconds: not_before.as_secs().saturating_sub(time.as_secs()) }
            }
            E::UnknownIssuer | E::BadSignature => Self::OtherCa,
            E::NotValidForNameContext { expected, presented } => {
                let presented = presented.iter().take(8).map(|name| bare(name)).collect();
                Self::OtherName { expected: expected.to_str().into_owned(), presented }
            }
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::Purpose,
            _ => Self::Unreadable,
        }
    }
}

/// A name as the library writes it, such as `DnsName("host1")`, without the clothes.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').chars().take(64).collect()
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "no name".to_owned() } else { names.join(" and ") }
}

fn span(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0 => return "some time".to_owned(),
        1..3600 => (seconds.div_ceil(60), "minute"),
        3600..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_names_are_told_as_people_do() {
        let told = |seconds| CertificateProblem::Expired { seconds }.to_string();
        assert_eq!(told(1), "it expired 1 minute ago");
        assert_eq!(told(3600 * 5), "it expired 5 hours ago");
        assert_eq!(told(86_400 * 3), "it expired 3 days ago");
        assert_eq!(told(0), "it expired some time ago");
        assert_eq!(bare("DnsName(\"host1\")"), "host1");
        assert_eq!(bare("IpAddress(127.0.0.1)"), "127.0.0.1");
        let other = CertificateProblem::OtherName {
            expected: "10.0.0.1".into(),
            presented: vec!["a".into(), "b".into()],
        };
        assert_eq!(other.to_string(), "it is for a and b, not for 10.0.0.1");
    }
}
