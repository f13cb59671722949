//! Packets as all parts of Zabbix exchange them: `ZBXD`, flags, the length, the length before compression, then JSON
//! (zabbix.com/documentation/7.0/en/manual/appendix/protocols/header_datalen), and what a server says to values.

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How every packet begins.
const MAGIC: [u8; 4] = *b"ZBXD";
/// It is Zabbix' own protocol.
const FLAG_ZABBIX: u8 = 0x01;
/// Magic, flags, two lengths of 32 bits, least byte first.
const HEADER: usize = 13;

/// Longest answer that is read, bytes: a server's is a hundred.
pub const MOST_ANSWER: usize = 64 * 1024;
/// Longest text of a server that is repeated, in characters.
const MOST_TEXT: usize = 200;

/// Why a packet could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The connection broke off, or cannot be written.
    #[error("the connection broke off")]
    Broken(#[from] std::io::Error),
    /// It is no packet of Zabbix'.
    #[error("what answers does not speak Zabbix' protocol")]
    NotZabbix,
    /// It is compressed or of the large kind, which nobody asked for.
    #[error("the answer has the flags {0:#04x}, and only 0x01 was asked for")]
    Flags(u8),
    /// It is longer than an answer may be.
    #[error("the answer has {0} bytes, and at most {MOST_ANSWER} are read")]
    TooLong(u32),
    /// What is in it is not what a server says to values.
    #[error("the answer is not understood: {0}")]
    Malformed(&'static str),
}

/// Writes one packet.
///
/// # Errors
/// [`PacketError::Broken`]; or [`PacketError::Malformed`] for more than 4 GiB.
pub async fn write_packet(to: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> Result<(), PacketError> {
    let length = u32::try_from(body.len()).map_err(|_| PacketError::Malformed("a packet of ours is too long"))?;
    let mut packet = Vec::with_capacity(HEADER + body.len());
    packet.extend_from_slice(&MAGIC);
    packet.push(FLAG_ZABBIX);
    packet.extend_from_slice(&length.to_le_bytes());
    packet.extend_from_slice(&0_u32.to_le_bytes());
    packet.extend_from_slice(body);
    to.write_all(&packet).await?;
    Ok(to.flush().await?)
}

/// Reads one packet; no more of it than it may have.
///
/// # Errors
/// [`PacketError`]; nothing is allocated by a length that was only claimed.
pub async fn read_packet(from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, PacketError> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header).await?;
    let length = length(&header)?;
    let mut body = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut body).await?;
    if u32::try_from(body.len()) != Ok(length) {
        return Err(PacketError::Broken(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(body)
}

fn length(header: &[u8; HEADER]) -> Result<u32, PacketError> {
    let [z, b, x, d, flags, l0, l1, l2, l3, ..] = *header;
    if [z, b, x, d] != MAGIC {
        return Err(PacketError::NotZabbix);
    }
    if flags != FLAG_ZABBIX {
        return Err(PacketError::Flags(flags));
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let fits = usize::try_from(length).is_ok_and(|length| length <= MOST_ANSWER);
    if fits { Ok(length) } else { Err(PacketError::TooLong(length)) }
}

/// What a server says to values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has looked at all of them.
    Looked {
        /// Values that it has taken.
        processed: u64,
        /// Values that it has not: of no such item, of another type, from where they may not come.
        failed: u64,
    },
    /// It takes none, and says why.
    Refused(String),
    /// It is a proxy of a group, and the host is another's.
    Redirected(String),
}

#[derive(Deserialize)]
struct Said {
    response: String,
    #[serde(default)]
    info: String,
    redirect: Option<Redirect>,
}

#[derive(Deserialize)]
struct Redirect {
    #[serde(default)]
    address: String,
}

impl Answer {
    /// Out of the body of a packet.
    ///
    /// # Errors
    /// [`PacketError::Malformed`].
    pub fn read(body: &[u8]) -> Result<Self, PacketError> {
        let said: Said =
            serde_json::from_slice(body).map_err(|_| PacketError::Malformed("it is no JSON of a server"))?;
        match said {
            Said { redirect: Some(Redirect { address }), .. } => Ok(Self::Redirected(short(&address))),
            Said { response, info, .. } if response == "success" => {
                let (processed, failed) =
                    counts(&info).ok_or(PacketError::Malformed("it does not say how many were taken"))?;
                Ok(Self::Looked { processed, failed })
            }
            Said { info, .. } => Ok(Self::Refused(short(&info))),
        }
    }
}

/// How many were taken and how many were not: `processed: 1; failed: 0; total: 1; seconds spent: 0.06`.
pub(crate) fn counts(info: &str) -> Option<(u64, u64)> {
    let number = |name: &str| {
        let mut parts = info.split(';').filter_map(|part| part.trim().split_once(':'));
        parts.find(|(found, _)| *found == name)?.1.trim().parse::<u64>().ok()
    };
    let (processed, failed, total) = (number("processed")?, number("failed")?, number("total")?);
    (processed.checked_add(failed)? == total).then_some((processed, failed))
}

/// One short printable line out of a text of others.
pub(crate) fn short(text: &str) -> String {
    let printable = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    printable.take(MOST_TEXT).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn packet(flags: u8, length: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = b"ZBXD".to_vec();
        bytes.push(flags);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<u8>, PacketError> {
        run(async { read_packet(&mut &*bytes).await })
    }

    #[test]
    fn a_packet_has_the_header_that_the_documentation_shows() {
        let mut written = Vec::new();
        run(write_packet(&mut written, b"{}")).unwrap();
        assert_eq!(written, *b"ZBXD\x01\x02\0\0\0\0\0\0\0{}");
        assert_eq!(read(&written).unwrap(), b"{}");
    }

    #[test]
    fn what_nobody_asked_for_is_refused_by_its_header_alone() {
        assert!(matches!(read(b"HTTP/1.1 400 Bad Request\r\n"), Err(PacketError::NotZabbix)));
        for flags in [0, 0x03, 0x05, 0x07, 0xff] {
            assert!(matches!(read(&packet(flags, 2, b"{}")), Err(PacketError::Flags(found)) if found == flags));
        }
        for length in [65_537, u32::MAX] {
            assert!(matches!(read(&packet(1, length, b"{}")), Err(PacketError::TooLong(found)) if found == length));
        }
        assert!(matches!(read(&packet(1, 3, b"{}")), Err(PacketError::Broken(_))), "shorter than it says");
        assert!(matches!(read(b"ZBXD\x01"), Err(PacketError::Broken(_))));
    }

    #[test]
    fn an_answer_says_how_many_were_taken() {
        let read = |text: &str| Answer::read(text.as_bytes());
        let good = r#"{"response":"success","info":"processed: 2; failed: 1; total: 3; seconds spent: 0.060753"}"#;
        assert_eq!(read(good).unwrap(), Answer::Looked { processed: 2, failed: 1 });
        let refused = r#"{"response":"failed","info":"cannot\nparse"}"#;
        assert_eq!(read(refused).unwrap(), Answer::Refused("cannot parse".into()));
        let redirected = r#"{"response":"failed","redirect":{"revision":16,"address":"192.0.2.1:10053"}}"#;
        assert_eq!(read(redirected).unwrap(), Answer::Redirected("192.0.2.1:10053".into()));
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"response":"success"}"#,
            r#"{"response":"success","info":"processed: 1; failed: 0"}"#,
            r#"{"response":"success","info":"processed: 2; failed: 0; total: 1"}"#,
            r#"{"response":"success","info":"processed: -1; failed: 2; total: 1"}"#,
            r#"{"response":"success","info":"processed: 18446744073709551615; failed: 1; total: 0"}"#,
        ] {
            assert!(matches!(read(wrong), Err(PacketError::Malformed(_))), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read(body in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let mut written = Vec::new();
            run(write_packet(&mut written, &body)).unwrap();
            prop_assert_eq!(read(&written).unwrap(), body);
        }

        #[test]
        fn hostile_bytes_are_an_error_or_no_longer_than_an_answer_may_be(
            flags in prop_oneof![Just(1_u8), any::<u8>()],
            length in prop_oneof![0_u32..200, any::<u32>()],
            body in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(got) = read(&packet(flags, length, &body)) {
                prop_assert!(got.len() <= MOST_ANSWER && u32::try_from(got.len()) == Ok(length));
                prop_assert_eq!(&got[..], &body[..got.len()]);
                let _ = Answer::read(&got);
            }
        }

        #[test]
        fn a_hostile_info_is_counts_that_fit_or_nothing(info in "(processed|failed|total|x|[:; 0-9-]){0,20}") {
            if let Some((processed, failed)) = counts(&info) {
                prop_assert!(processed.checked_add(failed).is_some());
            }
        }
    }
}
