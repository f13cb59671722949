//! Which of the processor's instructions are used.
//!
//! AVX-512 is not among them: measured on a processor that has it, the same loops gained only in the order of 64-bit
//! integers that lie in the first-level cache. ARM's NEON belongs to its architecture, so there the portable path is vector
//! code.

use std::sync::OnceLock;

/// A way through the processor. All give the same results, [`best`](Self::best) the soonest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// What every processor of the architecture can do.
    Portable,
    /// x86-64 with AVX2 and F16C.
    Avx2,
}

impl Path {
    /// Every path, slowest first.
    pub const ALL: [Self; 2] = [Self::Portable, Self::Avx2];

    /// The best path of the processor this runs on; asked once.
    pub fn best() -> Self {
        static BEST: OnceLock<Path> = OnceLock::new();
        *BEST.get_or_init(|| Self::ALL.into_iter().rev().find(|path| path.is_available()).unwrap_or(Self::Portable))
    }

    /// Whether the processor this runs on has the instructions.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
        }
    }

    /// Whether the processor this runs on has the instructions.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Self::Portable
    }

    /// The path's name in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
        }
    }
}
