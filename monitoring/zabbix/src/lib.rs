//! Speaks to a site's Zabbix, 6.0 and 7.0: sends values of trapper items by the sender protocol ([`Sender`]), and reads hosts, problems and
//! history through the JSON-RPC API ([`Api`]).
//!
//! Values go over plain TCP, over TLS with certificates of the site's own CA, or, with a pre-shared key, through the site's own `zabbix_sender`:
//! rustls has no pre-shared keys. What comes back is a stranger's: lengths are bounded before anything is allocated by them, and every talk has an
//! end. What is sent, when, and what becomes of it when nobody takes it, is the caller's to say.

mod api;
mod packet;
mod program;
mod read;
mod sender;
mod tls;
mod value;

pub use api::{Api, ApiError, ApiVersion, Limits};
pub use packet::{Answer, MOST_ANSWER, PacketError, read_packet, write_packet};
pub use program::Psk;
pub use read::{HostId, Item, Point, Problem, Severity};
pub use sender::{SendError, Sender, Taken, TlsFiles, batches};
pub use tls::TlsError;
pub use value::{Parameter, Value, discovery, key};

/// Most values of one packet; `zabbix_sender` has the same bound.
pub const MOST_VALUES: usize = 250;
