//! What all that eirened asks over HTTP has in common: who is believed to be there, how much is read, and that no secret gets into a log.

use eirene_core::text::one_line;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use reqwest::{Certificate, Client, Response, redirect};
use secrecy::SecretString;

/// A connection has to be there within this time.
const CONNECT: Duration = Duration::from_secs(2);
/// How much of what somebody else says is kept for a line of the log.
const MOST_SAID: usize = 200;

/// A client that follows no redirect and waits no longer than `wait`. `ca_file`, which the configuration calls `key`, has the only certificates that are
/// believed.
///
/// # Errors
/// The file cannot be read, or holds no certificates.
pub fn client(key: &str, ca_file: Option<&Path>, wait: Duration) -> anyhow::Result<Client> {
    let mut client = Client::builder().redirect(redirect::Policy::none()).connect_timeout(CONNECT).timeout(wait);
    if let Some(file) = ca_file {
        let name = file.display();
        let pem = std::fs::read(file).with_context(|| format!("`{key}`: `{name}` cannot be read"))?;
        let certificates = Certificate::from_pem_bundle(&pem).ok().filter(|found| !found.is_empty());
        let certificates = certificates.with_context(|| format!("`{key}`: `{name}` holds no certificates in PEM"))?;
        client = client.tls_certs_only(certificates);
    }
    Ok(client.build()?)
}

/// What a file holds: read each time it is used, because tokens are replaced while we run.
pub async fn secret(file: &Path) -> Result<SecretString, String> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| format!("`{}`: {error}", file.display()))?;
    Ok(SecretString::from(text.trim()))
}

/// At most so many bytes of an answer; none where there are more.
///
/// # Errors
/// The connection's, in words.
pub async fn read(answer: Response, most: usize) -> Result<Vec<u8>, Unread> {
    if answer.content_length().is_some_and(|length| length > most as u64) {
        return Err(Unread::TooMuch);
    }
    let (mut bytes, mut stream) = (Vec::new(), answer.bytes_stream());
    while let Some(part) = stream.next().await {
        let part = part.map_err(Unread::Broken)?;
        if bytes.len() + part.len() > most {
            return Err(Unread::TooMuch);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// Why an answer was not read to its end.
#[derive(Debug)]
pub enum Unread {
    /// It is longer than it may be.
    TooMuch,
    /// The connection broke, or took too long.
    Broken(reqwest::Error),
}

/// What went wrong, without the address, which may be anything.
pub fn why(error: reqwest::Error) -> String {
    let error = anyhow::Error::from(error.without_url());
    short(&format!("{error:#}"))
}

/// What somebody else says, short enough for a line of the log.
pub fn short(text: &str) -> String {
    one_line(text, MOST_SAID)
}
