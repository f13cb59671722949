//! Which GPUs are the job's.
//!
//! Where SLURM confines devices, a job can open its own alone, and NVML shows no others. Where it does not, its variables say which are meant:
//! `CUDA_VISIBLE_DEVICES` (numbers, UUIDs, or the beginnings of UUIDs: CUDA C Programming Guide, environment variables; MIG user guide), which
//! SLURM sets (gres.conf(5)), and `ROCR_VISIBLE_DEVICES` for AMD.

/// One GPU as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    Number(u32),
    Uuid(String),
}

/// The GPUs that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// None where nothing is said: all that can be seen.
    nvidia: Option<Vec<Wish>>,
    amd: Option<Vec<Wish>>,
}

impl Chosen {
    /// As this process's environment has it.
    pub(crate) fn from_environment() -> Self {
        Self::new(
            std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(),
            std::env::var("ROCR_VISIBLE_DEVICES").ok().as_deref(),
        )
    }

    fn new(cuda: Option<&str>, rocr: Option<&str>) -> Self {
        Self { nvidia: cuda.map(wishes), amd: rocr.map(wishes) }
    }

    /// Whether an NVIDIA GPU, or a part of one, is asked for. Whoever asks for a part asks for nothing else of the GPU.
    pub(crate) fn has_nvidia(&self, number: u32, uuid: &str) -> bool {
        is_wished(self.nvidia.as_deref(), Some(number), uuid)
    }

    /// Whether an NVIDIA GPU is asked for by its number.
    pub(crate) fn names_nvidia(&self, number: u32) -> bool {
        self.nvidia.as_ref().is_some_and(|wishes| wishes.contains(&Wish::Number(number)))
    }

    /// Whether a part of a GPU is asked for; who asks for the GPU itself has all of its parts.
    pub(crate) fn has_part(&self, of: u32, uuid_of: &str, uuid: &str) -> bool {
        self.has_nvidia(of, uuid_of) || is_wished(self.nvidia.as_deref(), None, uuid)
    }

    /// Whether an AMD GPU is asked for.
    pub(crate) fn has_amd(&self, number: u32, uuid: &str) -> bool {
        is_wished(self.amd.as_deref(), Some(number), uuid)
    }
}

/// CUDA takes what stands before the first word it does not know.
fn wishes(text: &str) -> Vec<Wish> {
    let wish = |word: &str| {
        let word = word.trim();
        let is_uuid = ["GPU-", "MIG-"].iter().any(|begin| word.len() > begin.len() && word.starts_with(begin));
        word.parse().map(Wish::Number).ok().or_else(|| is_uuid.then(|| Wish::Uuid(word.to_owned())))
    };
    text.split(',').map_while(wish).collect()
}

fn is_wished(wishes: Option<&[Wish]>, number: Option<u32>, uuid: &str) -> bool {
    wishes.is_none_or(|wishes| {
        wishes.iter().any(|wish| match wish {
            Wish::Number(wished) => Some(*wished) == number,
            Wish::Uuid(wished) => uuid.starts_with(wished.as_str()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_uuids_and_their_beginnings() {
        let all = Chosen::new(None, None);
        assert!(all.has_nvidia(7, "GPU-x") && all.has_part(7, "GPU-x", "MIG-y") && all.has_amd(0, ""));
        let some = Chosen::new(Some("1, GPU-ab,MIG-c"), Some("0"));
        assert!(some.has_nvidia(1, "GPU-z") && some.has_nvidia(5, "GPU-abc"));
        assert!(!some.has_nvidia(0, "GPU-z"));
        assert!(some.names_nvidia(1) && !some.names_nvidia(0) && !all.names_nvidia(1));
        assert!(
            some.has_part(0, "GPU-z", "MIG-cd")
                && some.has_part(1, "GPU-z", "MIG-q")
                && !some.has_part(0, "GPU-z", "MIG-q")
        );
        assert!(some.has_amd(0, "") && !some.has_amd(1, ""));
    }

    #[test]
    fn what_stands_behind_an_unknown_word_is_not_taken() {
        for none in ["", "-1", "NoDevFiles", "GPU-", "-1,0"] {
            let chosen = Chosen::new(Some(none), None);
            assert!(!chosen.has_nvidia(0, "GPU-a"), "{none}");
        }
        let chosen = Chosen::new(Some("0,x,1"), None);
        assert!(chosen.has_nvidia(0, "") && !chosen.has_nvidia(1, ""));
    }
}
