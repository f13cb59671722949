//! Which versions of SLURM are supported: 23.11, which brought data parser v0.0.40, to 26.05. An older one is refused by name; a newer one is used.

use std::ops::RangeInclusive;

use eirene_core::scheduler::{SchedulerError, SchedulerResult};

/// Year and month of a series of releases.
type Series = (u32, u32);

const SUPPORTED: RangeInclusive<Series> = (23, 11)..=(26, 5);

/// Oldest data parser whose answers we read: SLURM 23.11.
pub(crate) const OLDEST_PARSER: u32 = 40;
/// Newest data parser that the adapters are tested with: SLURM 26.05.
pub(crate) const NEWEST_PARSER: u32 = 45;

/// Data parsers of the series before 23.11, newest first.
const OLD_PARSERS: [(u32, &str); 4] = [(39, "23.02"), (38, "22.05"), (37, "21.08"), (36, "20.11")];

/// Whether a version, as [`Scheduler::ping`](eirene_core::scheduler::Scheduler::ping) answers it, is newer than any that the adapters are tested with.
pub fn is_newer_than_tested(version: &str) -> bool {
    series(version).is_some_and(|series| series > *SUPPORTED.end())
}

/// Refuses SLURM's programs where their `--version` is too old. A version that cannot be read refuses nothing.
pub(crate) fn check_programs(version: &str) -> SchedulerResult<()> {
    match series(version) {
        Some(series) if series < *SUPPORTED.start() => {
            let release = version.split_whitespace().last().unwrap_or_default();
            Err(unsupported(release, &format!("its programs have no data parser v0.0.{OLDEST_PARSER}")))
        }
        _ => Ok(()),
    }
}

/// Why a slurmrestd is refused whose newest data parser is this old one.
pub(crate) fn old_slurmrestd(parser: u32) -> SchedulerError {
    let release = OLD_PARSERS.iter().find(|(known, _)| *known == parser).map_or("before 20.11", |(_, release)| release);
    unsupported(
        release,
        &format!("the newest data parser of its slurmrestd is v0.0.{parser}, and v0.0.{OLDEST_PARSER} is needed"),
    )
}

fn unsupported(release: &str, why: &str) -> SchedulerError {
    let what = format!("SLURM {release} is not supported: {why}; upgrade SLURM to 23.11 or newer");
    SchedulerError::Unsupported { what }
}

/// The series in `slurm-wlm 24.11.5` or `SLURM 26.05.5`.
fn series(version: &str) -> Option<Series> {
    let mut numbers = version.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_before_23_11_are_refused_by_name() {
        for version in ["slurm-wlm 22.05.8\n", "slurm 23.02.7", "slurm 20.11.4"] {
            let said = check_programs(version).unwrap_err().to_string();
            let release = version.split_whitespace().last().unwrap();
            let whole = format!(
                "SLURM {release} is not supported: its programs have no data parser v0.0.40; upgrade SLURM to 23.11 or newer"
            );
            assert_eq!(said, whole);
        }
        for version in [
            "slurm 23.11.0-0rc1",
            "slurm-wlm 24.11.5\n",
            "slurm-wlm 26.05.5",
            "slurm 27.11.0",
            "",
            "slurm",
            "slurm x.y",
        ] {
            assert!(check_programs(version).is_ok(), "{version}");
        }
    }

    #[test]
    fn an_old_slurmrestd_is_refused_by_name() {
        for (parser, release) in [(39, "23.02"), (38, "22.05"), (36, "20.11"), (35, "before 20.11")] {
            let said = old_slurmrestd(parser).to_string();
            assert!(said.starts_with(&format!("SLURM {release} is not supported: ")), "{said}");
            assert!(said.contains(&format!("v0.0.{parser}, and v0.0.40 is needed; upgrade SLURM to 23.11")), "{said}");
        }
    }

    #[test]
    fn only_what_comes_after_26_05_is_newer_than_tested() {
        for (version, expected) in [
            ("SLURM 24.11.5", false),
            ("SLURM 26.05.9", false),
            ("SLURM 26.11.0", true),
            ("SLURM 27.05.0", true),
            ("SLURM", false),
        ] {
            assert_eq!(is_newer_than_tested(version), expected, "{version}");
        }
    }
}
