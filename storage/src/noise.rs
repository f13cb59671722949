//! What BeeGFS's tools print beside their answer: a banner, blank lines, sentences that say what went wrong. Takes the answer out of it and
//! says what the sentences mean.

use eirene_core::storage::{PoolId, StorageError, Why};

use crate::doubts::{Doubts, printable};

/// Seconds after which a storage that was away is asked again.
const RETRY_AFTER_S: u64 = 10;
/// A line of the banner's frame, as `beegfs-ctl` 7 prints it.
const FRAME: &str = "--------------------------------------------------------------------------------";

/// What a sentence of a tool means. The tools print them with an exit status of zero, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A server did not answer.
    Away,
    /// Rights, a feature that is off.
    Refused(Why),
    /// A feature without a licence.
    Unlicensed,
    /// The management has another secret than the one in the launcher's configuration.
    WrongSecret,
    /// The secret cannot be read.
    NoSecret,
    /// The management's certificate is not the configured one, is not for its name, or has expired.
    WrongCertificate,
    /// The certificate cannot be read.
    NoCertificate,
    /// A name, id or path that is not there.
    NoSuchPlace,
    /// A storage pool that is not there.
    NoSuchPool,
}

impl Trouble {
    /// As an error of the port; `said` is the sentence.
    pub(crate) fn error(self, said: &str) -> StorageError {
        let said = printable(said);
        let refused = |text: String| StorageError::Refused { why: Why::Refused, text };
        match self {
            Self::Away => StorageError::Away { source: Some(said.into()), retry_after_s: RETRY_AFTER_S },
            Self::Refused(why) => StorageError::Refused { why, text: said },
            Self::Unlicensed => {
                let text = format!("This BeeGFS has no licence for {}.", feature(&said));
                StorageError::Refused { why: Why::Unlicensed, text }
            }
            Self::WrongSecret => refused(
                "BeeGFS's management server has another connection secret. Copy it to `auth_file` in the launcher's \
                 configuration."
                    .into(),
            ),
            Self::NoSecret => refused(
                "BeeGFS's tool cannot read its connection secret. Let the launcher's account for BeeGFS read `auth_file` of \
                 the launcher's configuration."
                    .into(),
            ),
            Self::NoCertificate => refused(
                "BeeGFS's tool cannot read the certificate. Let the launcher's account for BeeGFS read `tls_cert` of the \
                 launcher's configuration."
                    .into(),
            ),
            Self::WrongCertificate => refused(certificate(&said).into()),
            // `Unable to resolve given name: ada`
            Self::NoSuchPlace => {
                let path = said.rsplit_once(": ").map_or(said.as_str(), |(_, path)| path).to_owned();
                StorageError::NoSuchPlace { path }
            }
            Self::NoSuchPool => match pool(&said) {
                Some(pool) => StorageError::NoSuchPool(pool),
                None => StorageError::NoSuchPlace { path: said },
            },
        }
    }
}

/// The feature that a refusal is about: `Get quota usage: …`, `Create pool: …`, `Feature Mirroring unavailable`.
fn feature(said: &str) -> &'static str {
    let said = said.to_ascii_lowercase();
    let features = [("quota", "quotas"), ("mirror", "mirrors"), ("buddy", "mirrors"), ("pool", "storage pools")];
    features.into_iter().find(|(word, _)| said.contains(word)).map_or("this", |(_, feature)| feature)
}

/// What to do about a certificate.
fn certificate(said: &str) -> &'static str {
    if said.contains("expired") {
        "The certificate of BeeGFS's management server has expired. Renew it, and copy it to `tls_cert` in the launcher's configuration."
    } else if said.contains("is valid for") || said.contains("doesn't contain any") {
        "The certificate of BeeGFS's management server is for another name. Use a name of the certificate in `mgmtd` of the launcher's \
         configuration."
    } else {
        "BeeGFS's management server has another certificate. Copy it to `tls_cert` in the launcher's configuration."
    }
}

/// The pool of `pool storage:9 does not exist` or `… storage pool s:7: …`: the first number behind a colon.
fn pool(said: &str) -> Option<PoolId> {
    let numbers = said.split(':').skip(1).map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>());
    numbers.into_iter().find_map(|number| number.parse().ok()).map(PoolId)
}

/// Sentences by how they begin, and what each means (branch 7.4.x of ThinkParQ/beegfs, beegfs-go 8.0 to 8.4).
const BEGINNINGS: [(&str, Trouble); 24] = [
    ("Communication with server failed", Trouble::Away),
    ("Failed to communicate with node", Trouble::Away),
    ("Could not gather quota information from all storage nodes", Trouble::Away),
    ("Refusing to display incorrect information", Trouble::Away),
    ("Couldn't receive valid quota data", Trouble::Away),
    ("Some IDs were skipped because of invalid values", Trouble::Away),
    ("Management node not defined", Trouble::Away),
    ("Management node communication failed", Trouble::Away),
    ("Node download failed", Trouble::Away),
    ("Metadata nodes download failed", Trouble::Away),
    ("Storage nodes download failed", Trouble::Away),
    ("Unable to find metadata node for path", Trouble::Away),
    ("Unable to connect", Trouble::Away),
    ("[ERROR from", Trouble::Away),
    ("[ERROR:", Trouble::Away),
    ("This mode requires root privileges", Trouble::Refused(Why::Refused)),
    ("only root can", Trouble::Refused(Why::Refused)),
    ("Insufficient privileges", Trouble::Refused(Why::Refused)),
    ("Node encountered an error: Permission denied", Trouble::Refused(Why::Refused)),
    ("Quota is not enabled", Trouble::Refused(Why::NotEnabled)),
    ("Failed to set quota limits. Quota is not enabled", Trouble::Refused(Why::NotEnabled)),
    ("Unable to resolve given name", Trouble::NoSuchPlace),
    ("Storage pool ID doesn't exist", Trouble::NoSuchPlace),
    ("No such", Trouble::NoSuchPlace),
];

/// Words anywhere in what 8 prints on standard error, where its sentences are put together from several.
const WORDS: [(&str, Trouble); 20] = [
    ("only root can", Trouble::Refused(Why::Refused)),
    ("Request requires authentication", Trouble::WrongSecret),
    ("couldn't read auth file", Trouble::NoSecret),
    ("reading certificate file failed", Trouble::NoCertificate),
    ("failed to verify certificate", Trouble::WrongCertificate),
    ("x509: ", Trouble::WrongCertificate),
    ("PermissionDenied", Trouble::Refused(Why::Refused)),
    // Besides a secret the management refuses nothing with this code but features without a licence.
    ("Unauthenticated", Trouble::Unlicensed),
    ("license", Trouble::Unlicensed),
    ("Quota support is not enabled", Trouble::Refused(Why::NotEnabled)),
    ("not configured to query/enforce", Trouble::Refused(Why::NotEnabled)),
    ("pool storage:", Trouble::NoSuchPool),
    ("entity not found: pool", Trouble::NoSuchPool),
    ("unable to retrieve the specified storage pool", Trouble::NoSuchPool),
    ("Unavailable", Trouble::Away),
    ("connect", Trouble::Away),
    ("TCP request to ", Trouble::Away),
    ("deadline exceeded", Trouble::Away),
    ("unreachable", Trouble::Away),
    ("not exist", Trouble::NoSuchPlace),
];

/// What a line of an answer means, if it is one of the sentences.
pub(crate) fn trouble(line: &str) -> Option<Trouble> {
    let line = line.trim_start();
    BEGINNINGS.iter().find(|(beginning, _)| line.starts_with(beginning)).map(|(_, trouble)| *trouble)
}

/// What standard error means: its first line that is a sentence we know.
pub(crate) fn complaint(stderr: &str) -> Option<(Trouble, &str)> {
    let known = |line: &str| {
        let line = line.strip_prefix("Error: ").unwrap_or(line);
        trouble(line).or_else(|| WORDS.iter().find(|(word, _)| line.contains(word)).map(|(_, trouble)| *trouble))
    };
    stderr.lines().find_map(|line| known(line).map(|trouble| (trouble, line)))
}

/// The lines of an answer with their numbers, counted from 1: without the banner, blank lines and sentences of trouble, which become
/// doubts. A last line without an end was cut, and is a doubt as well: half a number is a wrong number.
pub(crate) fn lines<'a>(text: &'a str, doubts: &mut Doubts) -> Vec<(u32, &'a str)> {
    let mut all: Vec<(u32, &str)> = (1..).zip(text.split('\n')).collect();
    if let Some((number, rest)) = all.pop()
        && !rest.is_empty()
    {
        doubts.line(number, "the line has no end");
    }
    let from = banner_end(&all).unwrap_or(0);
    let mut kept = Vec::new();
    for &(number, line) in &all[from..] {
        if line.trim().is_empty() {
            continue;
        }
        if trouble(line).is_some() {
            doubts.line(number, line);
        } else {
            kept.push((number, line));
        }
    }
    kept
}

/// Where the answer begins behind the banner, if it begins with one.
fn banner_end(all: &[(u32, &str)]) -> Option<usize> {
    let first = all.iter().position(|(_, line)| !line.trim().is_empty())?;
    if all[first].1 != FRAME {
        return None;
    }
    let inside = all[first + 1..].iter().take_while(|(_, line)| line.starts_with("| ")).count();
    let end = first + 1 + inside;
    (all.get(end)?.1 == FRAME).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banner_is_skipped_as_a_block_and_only_at_the_beginning() {
        let text = format!("\n{FRAME}\n| Enterprise |\n{FRAME}\n\na\n{FRAME}\n");
        let mut doubts = Doubts::default();
        assert_eq!(lines(&text, &mut doubts), [(6, "a"), (7, FRAME)]);
        assert!(doubts.with(()).doubts.is_empty());
    }

    #[test]
    fn a_line_without_an_end_is_a_doubt() {
        let mut doubts = Doubts::default();
        assert_eq!(lines("a,1\nb,10", &mut doubts), [(1, "a,1")]);
        assert_eq!(doubts.with(()).doubts.len(), 1);
    }

    #[test]
    fn sentences_have_a_meaning() {
        assert_eq!(trouble(" [ERROR from beegfs-storage vm [ID: 1]: Communication error]"), Some(Trouble::Away));
        // As 7.4.7 says them without its management server, and to an account that is not root.
        let away = complaint("Management node communication failed: localhost\n").unwrap();
        assert_eq!(away.0, Trouble::Away);
        let refused = complaint("Node encountered an error: Permission denied\n").unwrap();
        assert_eq!(refused.0, Trouble::Refused(Why::Refused));
        let off = "Failed to set quota limits. Quota is not enabled in the management server.";
        assert_eq!(trouble(off), Some(Trouble::Refused(Why::NotEnabled)));
        assert_eq!(trouble("Failed to set quota limits. Something else."), None);
        assert_eq!(trouble("cloudsdk,1000,0,10737418240,0,100000"), None);
        let said = complaint("warning\nError: rpc error: code = PermissionDenied desc = no\n").unwrap();
        assert_eq!(said.0, Trouble::Refused(Why::Refused));
    }
}
