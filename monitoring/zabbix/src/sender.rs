//! Sends values: one packet a connection, as the protocol has it
//! (zabbix.com/documentation/7.0/en/manual/appendix/protocols/zabbix_sender).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{DnsName, ServerName};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::MOST_VALUES;
use crate::packet::{Answer, PacketError, read_packet, write_packet};
use crate::program::{self, Psk};
use crate::tls::{TlsError, client_config};
use crate::value::Value;

/// Most bytes of values and keys in one packet, unless one value alone has more.
const MOST_BATCH: usize = 256 * 1024;
/// Where a Zabbix server or proxy listens when no port is said.
const PORT: &str = "10051";

/// Certificates for TLS, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The site's CA, which has signed the server's certificate.
    pub ca: PathBuf,
    /// Our own certificate with its chain, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Name the server's certificate has, where it is not that of its address.
    pub server_name: Option<String>,
}

/// How many values were taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Values that Zabbix has taken.
    pub processed: u64,
    /// Values that it has not: of no such item, of another type, from where they may not come.
    pub failed: u64,
}

/// Why values were not sent. Whether they were taken all the same is not known, but after [`SendError::Refused`].
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nobody takes connections there.
    #[error("`{address}` cannot be reached")]
    Unreachable {
        /// `host:port`.
        address: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// It did not end in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// What was answered cannot be read.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The server takes no values, and says why.
    #[error("the values were refused: {0}")]
    Refused(String),
    /// The address is a proxy's of a group.
    #[error("the host belongs to another proxy of the group, `{0}`: send to the server, or to that proxy")]
    Redirected(String),
    /// Fewer or more values were looked at than were sent.
    #[error("the answer is about {about} values, and {sent} were sent")]
    Miscounted {
        /// Values it is about.
        about: u64,
        /// Values that were sent.
        sent: usize,
    },
    /// The site's `zabbix_sender` cannot be run.
    #[error("`{}` cannot be run", program.display())]
    Program {
        /// Program.
        program: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

#[derive(Serialize)]
struct Request<'a> {
    request: &'static str,
    data: &'a [Value],
}

enum Way {
    Plain,
    Tls { connector: TlsConnector, asked: ServerName<'static> },
    Program(Psk),
}

/// Sends values to one server or proxy.
pub struct Sender {
    address: String,
    wait: Duration,
    way: Way,
}

impl Sender {
    /// Without encryption, to `host:port`; a batch has `wait` from the connection to the answer.
    pub fn plain(address: &str, wait: Duration) -> Self {
        Self::new(address, wait, Way::Plain)
    }

    /// Over TLS with certificates.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be used.
    pub fn tls(address: &str, wait: Duration, files: &TlsFiles) -> Result<Self, TlsError> {
        let (host, _) = split_address(address);
        let expected = files.server_name.as_deref().unwrap_or(host);
        let config = client_config(files, expected)?;
        // Who answers is judged by `expected`; what is asked for is only what the handshake wants to have said.
        let asked = host.parse::<IpAddr>().map(|address| ServerName::IpAddress(address.into())).ok();
        let asked = asked.or_else(|| DnsName::try_from(host.to_owned()).ok().map(ServerName::DnsName));
        let asked = asked.ok_or_else(|| TlsError::Unusable(rustls::Error::General(format!("`{host}` is no host"))))?;
        Ok(Self::new(address, wait, Way::Tls { connector: TlsConnector::from(Arc::new(config)), asked }))
    }

    /// With a pre-shared key, through the site's own program.
    ///
    /// # Errors
    /// [`SendError::Program`]: program or key cannot be read.
    pub fn psk(address: &str, wait: Duration, psk: Psk) -> Result<Self, SendError> {
        program::look(&psk).map_err(|source| SendError::Program { program: psk.program.clone(), source })?;
        Ok(Self::new(address, wait, Way::Program(psk)))
    }

    fn new(address: &str, wait: Duration, way: Way) -> Self {
        let (host, port) = split_address(address);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Self { address: format!("{host}:{port}"), wait, way }
    }

    /// Sends one batch (see [`batches`]), and waits for what becomes of it.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(&self, values: &[Value]) -> Result<Taken, SendError> {
        if values.is_empty() {
            return Ok(Taken::default());
        }
        let sending = async {
            match &self.way {
                Way::Program(psk) => psk.send(&self.address, values).await,
                Way::Plain => ask(&mut self.connect().await?, values).await,
                Way::Tls { connector, asked } => {
                    let stream = connector.connect(asked.clone(), self.connect().await?).await;
                    ask(&mut stream.map_err(|source| self.unreachable(source))?, values).await
                }
            }
        };
        let taken = tokio::time::timeout(self.wait, sending).await.map_err(|_| SendError::Late(self.wait))??;
        let about = taken.processed.saturating_add(taken.failed);
        if usize::try_from(about) == Ok(values.len()) {
            Ok(taken)
        } else {
            Err(SendError::Miscounted { about, sent: values.len() })
        }
    }

    /// Begins to talk, for who wants to know whether it can be done, and says nothing.
    ///
    /// # Errors
    /// [`SendError::Unreachable`] or [`SendError::Late`]. With a pre-shared key only whether somebody takes connections is found out.
    pub async fn reach(&self) -> Result<(), SendError> {
        let reaching = async {
            let stream = self.connect().await?;
            if let Way::Tls { connector, asked } = &self.way {
                connector.connect(asked.clone(), stream).await.map_err(|source| self.unreachable(source))?;
            }
            Ok(())
        };
        tokio::time::timeout(self.wait, reaching).await.map_err(|_| SendError::Late(self.wait))?
    }

    async fn connect(&self) -> Result<TcpStream, SendError> {
        TcpStream::connect(&self.address).await.map_err(|source| self.unreachable(source))
    }

    fn unreachable(&self, source: std::io::Error) -> SendError {
        SendError::Unreachable { address: self.address.clone(), source }
    }
}

async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), values: &[Value]) -> Result<Taken, SendError> {
    let request = Request { request: "sender data", data: values };
    let body =
        serde_json::to_vec(&request).map_err(|_| PacketError::Malformed("values of ours have no form in JSON"))?;
    write_packet(stream, &body).await?;
    let answer = read_packet(stream).await?;
    // A farewell; everything was said.
    let _ = stream.shutdown().await;
    match Answer::read(&answer)? {
        Answer::Looked { processed, failed } => Ok(Taken { processed, failed }),
        Answer::Refused(why) => Err(SendError::Refused(why)),
        Answer::Redirected(to) => Err(SendError::Redirected(to)),
    }
}

/// Values in parts that each fit into a packet, in order.
pub fn batches(values: &[Value]) -> impl Iterator<Item = &[Value]> {
    let mut rest = values;
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fits = |value: &&Value| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(value.host.len() + value.key.len() + value.value.len());
            first || bytes <= MOST_BATCH
        };
        let many = rest.iter().take(MOST_VALUES).take_while(fits).count();
        let (batch, after) = rest.split_at(many);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Host and port of `host`, `host:port`, `[::1]:port` or `::1`.
pub(crate) fn split_address(address: &str) -> (&str, &str) {
    if let Some(rest) = address.strip_prefix('[') {
        let (host, port) = rest.split_once(']').unwrap_or((rest, ""));
        return (host, port.strip_prefix(':').unwrap_or(PORT));
    }
    match address.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, port),
        _ => (address, PORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: usize) -> Value {
        Value { host: "e".into(), key: "k".into(), value: "x".repeat(bytes), clock: 0, ns: 0 }
    }

    #[test]
    fn batches_are_bounded_by_number_and_by_bytes_and_leave_nothing_out() {
        let lengths = |values: &[Value]| batches(values).map(<[Value]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), [0_usize; 0]);
        assert_eq!(lengths(&vec![value(1); 501]), [250, 250, 1]);
        assert_eq!(lengths(&[value(200_000), value(100_000), value(100_000), value(900_000), value(1)]), [1, 2, 1, 1]);
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let known = [
            ("zabbix.example.org", ("zabbix.example.org", "10051")),
            ("zabbix.example.org:77", ("zabbix.example.org", "77")),
            ("[2001:db8::1]:77", ("2001:db8::1", "77")),
            ("[2001:db8::1]", ("2001:db8::1", "10051")),
            ("2001:db8::1", ("2001:db8::1", "10051")),
        ];
        for (address, expected) in known {
            assert_eq!(split_address(address), expected, "{address}");
        }
        let sender = Sender::plain("2001:db8::1", Duration::from_secs(1));
        assert_eq!(sender.address, "[2001:db8::1]:10051");
    }
}
