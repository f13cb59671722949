//! Who dials: the agent says [`Hello`], the portal a [`Greeting`], the agent confirms.
//!
//! Frames are a big-endian `u32` length and that much JSON, at most [`MAX_FRAME`] bytes, so that an unproven peer costs the portal
//! one small buffer. A job secret is exchanged for a tunnel key here, and may be exchanged again until the confirmation arrived:
//! a connection that breaks in between leaves no agent locked out.

use std::fmt;

use eirene_core::SessionId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Longest frame, bytes.
pub const MAX_FRAME: u32 = 16 * 1024;

/// The agent's first words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::VERSION`].
    pub version: u32,
    /// Session it claims to belong to.
    pub session: SessionId,
    /// What proves it.
    pub credential: Credential,
    /// Number of the job it runs in.
    pub slurm_job_id: u32,
    /// How often the job was restarted.
    pub restart_count: u32,
    /// Name of the node it runs on.
    pub node: String,
    /// POSIX user id it runs as.
    pub uid: u32,
    /// Version of the agent, for the log.
    pub agent_version: String,
}

/// What an agent proves itself with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// The secret of the job file; gives a tunnel key.
    JobSecret(String),
    /// The key of an earlier exchange.
    TunnelKey(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JobSecret(_) => "JobSecret(…)",
            Self::TunnelKey(_) => "TunnelKey(…)",
        })
    }
}

/// The portal's answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Greeting {
    /// Come in.
    Welcome {
        /// The key to use from now on, when a job secret was exchanged.
        tunnel_key: Option<String>,
        /// Seconds between heartbeats on the control stream.
        heartbeat_s: u32,
    },
    /// Stay out.
    Refused {
        /// Stable code for the agent's log.
        code: String,
        /// One sentence.
        text: String,
        /// Whether trying again is useless.
        permanent: bool,
    },
}

/// Says that the tunnel key has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    /// Always true.
    pub confirmed: bool,
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection broke.
    #[error("the connection broke during the handshake")]
    Broken(#[from] std::io::Error),
    /// The peer sent a frame that is too long.
    #[error("a handshake frame of {0} bytes is too long")]
    TooLong(u32),
    /// The peer sent something else.
    #[error("a handshake frame was not understood")]
    NotUnderstood(#[source] serde_json::Error),
    /// The portal refused.
    #[error("the portal refused: {text} ({code})")]
    Refused {
        /// Stable code.
        code: String,
        /// One sentence.
        text: String,
        /// Whether trying again is useless.
        permanent: bool,
    },
}

/// Sends one frame.
pub async fn send<T: Serialize>(io: &mut (impl AsyncWrite + Unpin), frame: &T) -> Result<(), HandshakeError> {
    let body = serde_json::to_vec(frame).map_err(HandshakeError::NotUnderstood)?;
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if length > MAX_FRAME {
        return Err(HandshakeError::TooLong(length));
    }
    let mut bytes = Vec::with_capacity(4 + body.len());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    io.write_all(&bytes).await?;
    io.flush().await?;
    Ok(())
}

/// Receives one frame. The caller sets the deadline.
pub async fn receive<T: DeserializeOwned>(io: &mut (impl AsyncRead + Unpin)) -> Result<T, HandshakeError> {
    let length = io.read_u32().await?;
    if length > MAX_FRAME {
        return Err(HandshakeError::TooLong(length));
    }
    let mut body = vec![0; length as usize];
    io.read_exact(&mut body).await?;
    serde_json::from_slice(&body).map_err(HandshakeError::NotUnderstood)
}

/// The agent's side: says hello and waits for the greeting. The caller keeps the key, then calls [`confirm`].
///
/// Returns the new tunnel key, if any, and the seconds between heartbeats.
pub async fn introduce(
    io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    hello: &Hello,
) -> Result<(Option<String>, u32), HandshakeError> {
    send(io, hello).await?;
    match receive(io).await? {
        Greeting::Welcome { tunnel_key, heartbeat_s } => Ok((tunnel_key, heartbeat_s)),
        Greeting::Refused { code, text, permanent } => Err(HandshakeError::Refused { code, text, permanent }),
    }
}

/// The agent's side: confirms. After this the connection is multiplexed.
pub async fn confirm(io: &mut (impl AsyncWrite + Unpin)) -> Result<(), HandshakeError> {
    send(io, &Confirm { confirmed: true }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            version: crate::VERSION,
            session: SessionId::generate(),
            credential: Credential::JobSecret("s".repeat(43)),
            slurm_job_id: 7,
            restart_count: 0,
            node: "c1".into(),
            uid: 2001,
            agent_version: "0".into(),
        }
    }

    #[tokio::test]
    async fn both_sides_understand_each_other() {
        let (mut agent, mut portal) = tokio::io::duplex(1024);
        let said = hello();
        let expected = said.clone();
        let agent = tokio::spawn(async move {
            let welcome = introduce(&mut agent, &said).await.unwrap();
            confirm(&mut agent).await.unwrap();
            welcome
        });
        assert_eq!(receive::<Hello>(&mut portal).await.unwrap(), expected);
        send(&mut portal, &Greeting::Welcome { tunnel_key: Some("k".into()), heartbeat_s: 5 }).await.unwrap();
        assert!(receive::<Confirm>(&mut portal).await.unwrap().confirmed);
        assert_eq!(agent.await.unwrap(), (Some("k".into()), 5));
    }

    #[tokio::test]
    async fn a_refusal_says_why_and_whether_to_try_again() {
        let (mut agent, mut portal) = tokio::io::duplex(1024);
        let portal = tokio::spawn(async move {
            receive::<Hello>(&mut portal).await.unwrap();
            send(&mut portal, &Greeting::Refused { code: "over".into(), text: "it is over".into(), permanent: true })
                .await
        });
        let refused = introduce(&mut agent, &hello()).await.unwrap_err();
        assert!(matches!(refused, HandshakeError::Refused { permanent: true, .. }), "{refused}");
        portal.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn long_frames_and_nonsense_are_refused_without_reading_on() {
        let (mut peer, mut portal) = tokio::io::duplex(64);
        peer.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
        assert!(matches!(receive::<Hello>(&mut portal).await, Err(HandshakeError::TooLong(u32::MAX))));
        peer.write_all(&[0, 0, 0, 3, b'{', b'x', b'}']).await.unwrap();
        assert!(matches!(receive::<Hello>(&mut portal).await, Err(HandshakeError::NotUnderstood(_))));
        drop(peer);
        assert!(matches!(receive::<Hello>(&mut portal).await, Err(HandshakeError::Broken(_))));
    }

    #[test]
    fn credentials_do_not_print() {
        assert!(!format!("{:?}", hello()).contains("sss"));
    }
}
