//! The certificates that a part of a mesh shows to others.

use std::path::PathBuf;

use ferroce_meshd::tls::{CredentialFiles, Credentials};

/// Certificates: all three files, or none of them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Certificates, needed for addresses other than loopback")]
pub(super) struct TlsArgs {
    /// The files of `ferroce mesh certificates` for NAME: DIR/ca.pem, DIR/NAME.pem and DIR/NAME.key
    #[arg(long, value_name = "DIR/NAME", conflicts_with_all = ["ca", "certificate", "key"])]
    tls: Option<PathBuf>,

    /// The certificate of the CA that made all others of the mesh, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["certificate", "key"])]
    ca: Option<PathBuf>,

    /// Our own certificate, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["ca", "key"])]
    certificate: Option<PathBuf>,

    /// Its private key, in PEM; a file that all users can read is refused
    #[arg(long, value_name = "FILE", requires_all = ["ca", "certificate"])]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// What is shown to others; nothing if that was not asked for.
    pub(super) fn credentials(&self) -> anyhow::Result<Option<Credentials>> {
        let files = match (&self.tls, &self.ca, &self.certificate, &self.key) {
            (Some(path), ..) => CredentialFiles::beside(path),
            (None, Some(ca), Some(certificate), Some(key)) => {
                CredentialFiles { ca: ca.clone(), certificate: certificate.clone(), key: key.clone() }
            }
            _ => return Ok(None),
        };
        Ok(Some(Credentials::read(&files)?))
    }
}
