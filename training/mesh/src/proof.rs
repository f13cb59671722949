//! How two ends of a fresh connection prove to each other that they know the world's secret, before a single byte that
//! came over it is interpreted.
//!
//! The listener speaks first: 32 random bytes, which say nothing. The caller answers with 96 bytes: what it wants (64
//! bytes, with 32 random bytes of its own) and an HMAC over the world, both random values and what it wants. The
//! listener feeds the 64 bytes to the HMAC unread; if the proof is wrong it hangs up without a word. Only then does it
//! read them, and it answers with 40 bytes: a verdict, and its own HMAC over the same and the verdict, under another
//! label. Each direction then has a key of its own.
//!
//! Labels differ by direction, so what one end sent cannot be sent back to it; both random values are fresh, so what was
//! recorded is worthless; the wanted ranks, purpose and mark are in the proof, so a proof cannot be used elsewhere.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::secret::{Secret, random};

pub(crate) const CHALLENGE: usize = 32;
pub(crate) const HELLO: usize = 96;
pub(crate) const ANSWER: usize = 40;
const WISH: usize = HELLO - 32;
const VERDICT: usize = ANSWER - 32;

/// The name of the protocol and its version.
const MAGIC: [u8; 8] = *b"EIRMESH\x02";

const CALLER: &[u8] = b"eirene-train-mesh 2 caller proves";
const LISTENER: &[u8] = b"eirene-train-mesh 2 listener proves";
const CALLER_KEY: &[u8] = b"eirene-train-mesh 2 caller to listener";
const LISTENER_KEY: &[u8] = b"eirene-train-mesh 2 listener to caller";
const OTHERS: &[u8] = b"eirene-train-mesh 2 for another use";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A rank comes to rank 0.
    Meet = 1,
    /// The control connection of two ranks.
    Link = 2,
    /// A connection for the runtime's data, which is sealed.
    Data = 3,
    /// One whose data nobody else is on the wire to see.
    Clear = 4,
}

/// What a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) purpose: Purpose,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) size: u32,
    /// Tells apart what purpose and ranks leave open: which life of a rank, which offer of a data connection.
    pub(crate) mark: u64,
}

impl Wish {
    fn encode(self, nonce: &[u8; 32]) -> [u8; WISH] {
        let mut bytes = [0; WISH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = self.purpose as u8;
        bytes[12..16].copy_from_slice(&self.from.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.to.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.mark.to_le_bytes());
        bytes[32..].copy_from_slice(nonce);
        bytes
    }

    /// Only for bytes whose proof was right.
    fn parse(bytes: &[u8; WISH]) -> Option<Self> {
        let purpose = match bytes[8] {
            1 => Purpose::Meet,
            2 => Purpose::Link,
            3 => Purpose::Data,
            4 => Purpose::Clear,
            _ => return None,
        };
        let word = |at: usize| bytes[at..at + 4].try_into().ok().map(u32::from_le_bytes);
        let mark = bytes[24..32].try_into().ok().map(u64::from_le_bytes)?;
        (bytes[..8] == MAGIC && bytes[9..12] == [0; 3]).then_some(())?;
        Some(Self { purpose, from: word(12)?, to: word(16)?, size: word(20)?, mark })
    }
}

/// What the listener says to a caller whose proof was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Come in.
    Welcome,
    /// The world has this many ranks.
    WrongSize(u32),
    /// That rank is here already.
    Taken,
    /// Nobody here waits for that.
    Unwanted,
}

impl Verdict {
    fn encode(self) -> [u8; VERDICT] {
        let (kind, detail) = match self {
            Self::Welcome => (0, 0),
            Self::WrongSize(size) => (1, size),
            Self::Taken => (2, 0),
            Self::Unwanted => (3, 0),
        };
        let mut bytes = [0; VERDICT];
        bytes[0] = kind;
        bytes[4..].copy_from_slice(&u32::to_le_bytes(detail));
        bytes
    }

    fn parse(bytes: [u8; VERDICT]) -> Option<Self> {
        match bytes[0] {
            0 => Some(Self::Welcome),
            1 => Some(Self::WrongSize(u32::from_le_bytes(bytes[4..].try_into().ok()?))),
            2 => Some(Self::Taken),
            3 => Some(Self::Unwanted),
            _ => None,
        }
    }
}

/// The keys of one connection, one for each direction.
pub(crate) struct Keys {
    pub(crate) ours: Zeroizing<[u8; 32]>,
    pub(crate) theirs: Zeroizing<[u8; 32]>,
}

/// Who proves: the secret, bound to one world.
#[derive(Clone)]
pub(crate) struct Prover {
    secret: Secret,
    world: [u8; 32],
}

impl Prover {
    pub(crate) fn new(secret: Secret, world: &str) -> Self {
        Self { secret, world: digest(world) }
    }

    /// A key for another use, which says nothing about the secret or about keys for other uses.
    pub(crate) fn derive(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        self.tag(OTHERS, &[purpose.as_bytes()]).into()
    }

    fn tag(&self, label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        tag(self.secret.expose(), label, &[&[self.world.as_slice()], parts].concat())
    }
}

/// What stands for a world's id in proofs and in the meeting file.
pub(crate) fn digest(world: &str) -> [u8; 32] {
    Sha256::digest(world.as_bytes()).into()
}

/// HMAC-SHA256 over a label and parts, each with its length before it.
pub(crate) fn tag(key: &[u8], label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in [&[label], parts].concat() {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// The listener's side of one proof.
pub(crate) struct Doorkeeper {
    challenge: [u8; CHALLENGE],
}

impl Doorkeeper {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut challenge = [0; CHALLENGE];
        random(&mut challenge)?;
        Ok(Self { challenge })
    }

    pub(crate) fn challenge(&self) -> &[u8; CHALLENGE] {
        &self.challenge
    }

    /// What the caller wants, if its proof is right; otherwise nothing has been read.
    pub(crate) fn check(&self, prover: &Prover, hello: &[u8; HELLO]) -> Option<Wish> {
        let (wish, proof) = hello.split_first_chunk::<WISH>()?;
        let right = prover.tag(CALLER, &[&self.challenge, wish]);
        if !bool::from(right.ct_eq(proof)) {
            return None;
        }
        Wish::parse(wish)
    }

    /// The answer to a caller whose proof was right, and the connection's keys.
    pub(crate) fn answer(&self, prover: &Prover, hello: &[u8; HELLO], verdict: Verdict) -> ([u8; ANSWER], Keys) {
        let wish = &hello[..WISH];
        let verdict = verdict.encode();
        let mut answer = [0; ANSWER];
        answer[..VERDICT].copy_from_slice(&verdict);
        answer[VERDICT..].copy_from_slice(&prover.tag(LISTENER, &[&self.challenge, wish, &verdict]));
        let keys = Keys {
            ours: prover.tag(LISTENER_KEY, &[&self.challenge, wish]).into(),
            theirs: prover.tag(CALLER_KEY, &[&self.challenge, wish]).into(),
        };
        (answer, keys)
    }
}

/// The caller's side of one proof, once it has the listener's challenge.
pub(crate) struct Caller {
    challenge: [u8; CHALLENGE],
    hello: [u8; HELLO],
}

impl Caller {
    pub(crate) fn new(prover: &Prover, wish: Wish, challenge: [u8; CHALLENGE]) -> Result<Self, Error> {
        let mut nonce = [0; 32];
        random(&mut nonce)?;
        let wish = wish.encode(&nonce);
        let mut hello = [0; HELLO];
        hello[..WISH].copy_from_slice(&wish);
        hello[WISH..].copy_from_slice(&prover.tag(CALLER, &[&challenge, &wish]));
        Ok(Self { challenge, hello })
    }

    pub(crate) fn hello(&self) -> &[u8; HELLO] {
        &self.hello
    }

    /// The listener's verdict and the connection's keys, if its proof is right.
    pub(crate) fn check(&self, prover: &Prover, answer: &[u8; ANSWER]) -> Option<(Verdict, Keys)> {
        let wish = &self.hello[..WISH];
        let (verdict, proof) = answer.split_first_chunk::<VERDICT>()?;
        let right = prover.tag(LISTENER, &[&self.challenge, wish, verdict]);
        if !bool::from(right.ct_eq(proof)) {
            return None;
        }
        let keys = Keys {
            ours: prover.tag(CALLER_KEY, &[&self.challenge, wish]).into(),
            theirs: prover.tag(LISTENER_KEY, &[&self.challenge, wish]).into(),
        };
        Some((Verdict::parse(*verdict)?, keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prover(secret: u8, world: &str) -> Prover {
        Prover::new(Secret::from_bytes([secret; 16]), world)
    }

    fn wish() -> Wish {
        Wish { purpose: Purpose::Link, from: 3, to: 1, size: 4, mark: 77 }
    }

    #[test]
    fn both_ends_with_the_secret_agree_on_keys() {
        let prover = prover(1, "w");
        let keeper = Doorkeeper::new().unwrap();
        let caller = Caller::new(&prover, wish(), *keeper.challenge()).unwrap();
        assert_eq!(keeper.check(&prover, caller.hello()), Some(wish()));
        let (answer, keys) = keeper.answer(&prover, caller.hello(), Verdict::WrongSize(9));
        let (verdict, mirror) = caller.check(&prover, &answer).unwrap();
        assert_eq!(verdict, Verdict::WrongSize(9));
        assert_eq!((&keys.ours, &keys.theirs), (&mirror.theirs, &mirror.ours));
        assert_ne!(keys.ours, keys.theirs);
    }

    #[test]
    fn another_secret_or_world_proves_nothing() {
        let ours = prover(1, "w");
        for other in [prover(2, "w"), prover(1, "v")] {
            let keeper = Doorkeeper::new().unwrap();
            let caller = Caller::new(&other, wish(), *keeper.challenge()).unwrap();
            assert_eq!(keeper.check(&ours, caller.hello()), None);
            let (answer, _) = keeper.answer(&ours, caller.hello(), Verdict::Welcome);
            assert!(caller.check(&other, &answer).is_none());
        }
    }

    #[test]
    fn a_recorded_hello_is_worthless_to_the_next_listener() {
        let prover = prover(1, "w");
        let first = Doorkeeper::new().unwrap();
        let caller = Caller::new(&prover, wish(), *first.challenge()).unwrap();
        assert_eq!(Doorkeeper::new().unwrap().check(&prover, caller.hello()), None);
        let (answer, _) = first.answer(&prover, caller.hello(), Verdict::Welcome);
        let again = Caller::new(&prover, wish(), *first.challenge()).unwrap();
        assert!(again.check(&prover, &answer).is_none());
    }

    #[test]
    fn a_caller_cannot_be_answered_with_its_own_proof() {
        let prover = prover(1, "w");
        let keeper = Doorkeeper::new().unwrap();
        let caller = Caller::new(&prover, wish(), *keeper.challenge()).unwrap();
        let mut answer = [0; ANSWER];
        answer[VERDICT..].copy_from_slice(&caller.hello()[WISH..]);
        assert!(caller.check(&prover, &answer).is_none());
    }

    #[test]
    fn keys_for_other_uses_differ_by_use_world_and_secret() {
        let key = |secret, world, purpose| *prover(secret, world).derive(purpose);
        assert_eq!(key(1, "w", "store"), key(1, "w", "store"));
        for other in [key(1, "w", "shop"), key(1, "v", "store"), key(2, "w", "store")] {
            assert_ne!(key(1, "w", "store"), other);
        }
    }

    proptest! {
        #[test]
        fn a_changed_hello_is_refused(at in 0..HELLO, flip in 1..=255_u8) {
            let prover = prover(1, "w");
            let keeper = Doorkeeper::new().unwrap();
            let caller = Caller::new(&prover, wish(), *keeper.challenge()).unwrap();
            let mut hello = *caller.hello();
            hello[at] ^= flip;
            prop_assert_eq!(keeper.check(&prover, &hello), None);
        }

        #[test]
        fn a_changed_answer_is_refused(at in 0..ANSWER, flip in 1..=255_u8) {
            let prover = prover(1, "w");
            let keeper = Doorkeeper::new().unwrap();
            let caller = Caller::new(&prover, wish(), *keeper.challenge()).unwrap();
            let (mut answer, _) = keeper.answer(&prover, caller.hello(), Verdict::Welcome);
            answer[at] ^= flip;
            prop_assert!(caller.check(&prover, &answer).is_none());
        }

        #[test]
        fn any_bytes_are_taken_without_panic(hello in proptest::array::uniform32(any::<u8>()), more in proptest::array::uniform32(any::<u8>())) {
            let mut wish = [0; WISH];
            wish[..32].copy_from_slice(&hello);
            wish[32..].copy_from_slice(&more);
            if let Some(read) = Wish::parse(&wish) {
                prop_assert_eq!(read.encode(&more), wish);
            }
            let mut verdict = [0; VERDICT];
            verdict.copy_from_slice(&hello[..VERDICT]);
            let _ = Verdict::parse(verdict);
        }

        #[test]
        fn a_wish_is_read_as_it_was_written(purpose in 0..4_u8, from: u32, to: u32, size: u32, mark: u64, nonce in proptest::array::uniform32(any::<u8>())) {
            let purpose = [Purpose::Meet, Purpose::Link, Purpose::Data, Purpose::Clear][usize::from(purpose)];
            let wish = Wish { purpose, from, to, size, mark };
            prop_assert_eq!(Wish::parse(&wish.encode(&nonce)), Some(wish));
        }
    }
}
