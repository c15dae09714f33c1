//! A CA of one's own, which makes certificates for trials.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use thiserror::Error;
use time::OffsetDateTime;

use super::credentials::{CredentialFiles, Credentials, is_name};
use super::files::{self, CredentialsError};
use super::problem::CertificateProblem;
use crate::clock;

/// The CA's own name, which is the same for all of them: their keys tell them apart.
const CA: &str = "ferroce mesh CA";

/// Clocks of other machines may be so far behind ours.
const SKEW: Duration = Duration::from_hours(1);

/// How long certificates are good, in seconds of the Unix clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From then on.
    pub from: u64,
    /// Until then.
    pub until: u64,
}

impl Validity {
    /// From now, and for clocks that are behind ours by up to an hour, for so long.
    #[must_use]
    pub fn starting_now(time: Duration) -> Self {
        let now = clock::unix_nanos() / 1_000_000_000;
        Self { from: now.saturating_sub(SKEW.as_secs()), until: now.saturating_add(time.as_secs()) }
    }
}

/// Why certificates are not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The name cannot be that of an agent or a host.
    #[error(
        "{name:?} is no name for a certificate: letters, digits, hyphens and dots, as names of hosts have, \
         and not ca"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A file is there already.
    #[error("{} is there already, and nothing is overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written or read.
    #[error("cannot use {}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is a CA without its key.
    #[error(
        "there is a CA, but not its key {}: certificates are made where that is kept", path.display()
    )]
    NoKey {
        /// Where the key should be.
        path: PathBuf,
    },
    /// The key of the CA cannot be used.
    #[error("the CA cannot make certificates")]
    Key(#[source] CredentialsError),
    /// The CA was made by something else.
    #[error(
        "{} is no CA that this program made; make certificates with the program that made it", path.display()
    )]
    Foreign {
        /// The certificate of the CA.
        path: PathBuf,
    },
    /// The library that makes certificates refuses.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

/// A CA in a directory: its certificate, which all programs of a mesh need, and its key, which stays there.
#[derive(Debug)]
pub struct Authority {
    directory: PathBuf,
    key: KeyPair,
    is_new: bool,
}

impl Authority {
    /// The CA in a directory, which is made if there is none, for so long.
    ///
    /// # Errors
    /// Files cannot be read or written, or there is a CA that was not made here.
    pub fn open(directory: &Path, validity: Validity) -> Result<Self, AuthorityError> {
        let file = |path: &Path, source| AuthorityError::File { path: path.to_owned(), source };
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(|source| file(directory, source))?;
        let (certificate, key_path) = (directory.join("ca.pem"), directory.join("ca.key"));
        let directory = directory.to_owned();
        match (certificate.exists(), fs::read_to_string(&key_path)) {
            (true, Ok(text)) => {
                files::key(&key_path).map_err(AuthorityError::Key)?;
                let key =
                    KeyPair::from_pem(&text).map_err(|_| AuthorityError::Foreign { path: certificate })?;
                Ok(Self { directory, key, is_new: false })
            }
            (true, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                Err(AuthorityError::NoKey { path: key_path })
            }
            (true, Err(source)) => Err(file(&key_path, source)),
            (false, _) => {
                let key = KeyPair::generate()?;
                let pem = parameters(validity)?.self_signed(&key)?.pem();
                write(&key_path, &key.serialize_pem(), 0o600)?;
                write(&certificate, &pem, 0o644)?;
                Ok(Self { directory, key, is_new: true })
            }
        }
    }

    /// Whether it was made just now.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Where the files for this name are, or will be.
    #[must_use]
    pub fn files(&self, name: &str) -> CredentialFiles {
        CredentialFiles::beside(&self.directory.join(name))
    }

    /// Whether certificates for these names can be made: each is one, and has no files yet.
    ///
    /// # Errors
    /// A name is none, or has files.
    pub fn check<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), AuthorityError> {
        for name in names {
            if !is_name(name) || name == "ca" {
                return Err(AuthorityError::Name { name: name.chars().take(64).collect() });
            }
            let CredentialFiles { certificate, key, .. } = self.files(name);
            if let Some(path) = [certificate, key].into_iter().find(|path| path.exists()) {
                return Err(AuthorityError::Exists { path });
            }
        }
        Ok(())
    }

    /// Makes a key and a certificate for the agent of this name, which may also be a server at the name and
    /// at these addresses.
    ///
    /// # Errors
    /// The name is none or has files, or files cannot be written.
    pub fn issue(
        &self,
        name: &str,
        addresses: &[IpAddr],
        validity: Validity,
    ) -> Result<CredentialFiles, AuthorityError> {
        self.check([name])?;
        let mut request = CertificateParams::new([name.to_owned()])?;
        request.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        request.distinguished_name = distinguished(name);
        request.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        request.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        request.use_authority_key_identifier_extension = true;
        (request.not_before, request.not_after) = times(validity)?;
        let key = KeyPair::generate()?;
        let made = request.signed_by(&key, &Issuer::new(parameters(validity)?, &self.key))?;
        let files = self.files(name);
        write(&files.key, &key.serialize_pem(), 0o600)?;
        write(&files.certificate, &made.pem(), 0o644)?;
        let read = Credentials::read(&files);
        if let Err(CredentialsError::Certificate { source: CertificateProblem::OtherCa, .. }) = read {
            for path in [&files.key, &files.certificate] {
                let _ = fs::remove_file(path);
            }
            return Err(AuthorityError::Foreign { path: files.ca });
        }
        Ok(files)
    }
}

fn parameters(validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = distinguished(CA);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (parameters.not_before, parameters.not_after) = times(validity)?;
    Ok(parameters)
}

fn distinguished(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    // A common name has 64 letters at most; what counts are the names beside it.
    distinguished.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    distinguished
}

fn times(validity: Validity) -> Result<(OffsetDateTime, OffsetDateTime), AuthorityError> {
    let time = |seconds: u64| {
        let seconds = i64::try_from(seconds).map_err(|_| rcgen::Error::Time)?;
        OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| rcgen::Error::Time)
    };
    Ok((time(validity.from)?, time(validity.until)?))
}

/// Writes a new file, which has this mode from its beginning.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), AuthorityError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => AuthorityError::Exists { path: path.to_owned() },
        _ => AuthorityError::File { path: path.to_owned(), source },
    })
}
