//! Certificates and keys in files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::problem::CertificateProblem;

/// Bytes of a file at most.
const LONGEST: u64 = 1 << 20;

/// Certificates of a file at most.
const MOST: usize = 64;

/// Why certificates and keys cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is longer than any such file.
    #[error("{} is longer than 1 MiB, so it holds no certificates", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A file holds something else.
    #[error("{} holds no {what}: no line of it begins with -----BEGIN", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// A file is cut off or damaged.
    #[error("{} is cut off or damaged: what begins in it with -----BEGIN has no right end", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A key can be read by all users.
    #[error(
        "all users of this machine can read the key {} (mode {mode:04o}); make it yours alone: chmod 600 {}",
        path.display(), path.display()
    )]
    OpenKey {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file holds no key that is understood.
    #[error("the key in {} is of a kind that is not understood", path.display())]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// Key and certificate are not made for each other.
    #[error("the key {} does not belong to the certificate {}", key.display(), certificate.display())]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// The CA is none.
    #[error("{} holds no certificate of a CA", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
    },
    /// The certificate is none, or none of the CA.
    #[error("the certificate {} cannot be used with the CA {}", path.display(), ca.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The file of the CA.
        ca: PathBuf,
        /// What is wrong with it.
        source: CertificateProblem,
    },
    /// The certificate says nothing of what its owner is.
    #[error("the certificate {} carries no name", path.display())]
    NoName {
        /// The file.
        path: PathBuf,
    },
    /// The ciphers that are needed are not there.
    #[error("TLS 1.3 cannot be spoken")]
    Ciphers,
}

/// The certificates of a file, which are one at least.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let (text, _) = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).take(MOST).collect();
    let all = all.map_err(|error| unreadable(path, "certificate", &error))?;
    if all.is_empty() {
        return Err(unreadable(path, "certificate", &pem::Error::NoItemsFound));
    }
    Ok(all)
}

/// The key of a file, which only its owner and its group may read.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    let (text, mode) = read(path)?;
    if mode & 0o007 != 0 {
        return Err(CredentialsError::OpenKey { path: path.to_owned(), mode: mode & 0o7777 });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| unreadable(path, "private key", &error))
}

fn unreadable(path: &Path, what: &'static str, error: &pem::Error) -> CredentialsError {
    let path = path.to_owned();
    match error {
        pem::Error::NoItemsFound => CredentialsError::NotPem { path, what },
        _ => CredentialsError::Damaged { path },
    }
}

/// What a file holds, and its mode.
fn read(path: &Path) -> Result<(Vec<u8>, u32), CredentialsError> {
    let look = || {
        let file = File::open(path)?;
        let mode = file.metadata()?.permissions().mode();
        let mut text = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut text)?;
        Ok((text, mode))
    };
    let (text, mode) = look().map_err(|source| CredentialsError::Read { path: path.to_owned(), source })?;
    if text.len() as u64 > LONGEST {
        return Err(CredentialsError::TooLong { path: path.to_owned() });
    }
    Ok((text, mode))
}
