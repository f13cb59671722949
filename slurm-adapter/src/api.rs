//! What a slurmrestd offers: its newest data parser, and the paths under it as it lists them.

use eirene_core::NodeName;

use crate::versions::{NEWEST_PARSER, OLDEST_PARSER};

/// Paths of one data parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Api {
    version: u32,
    pub(crate) jobs: String,
    pub(crate) submit: String,
    pub(crate) nodes: String,
    pub(crate) partitions: String,
    pub(crate) ping: String,
    /// The accounting database, where slurmrestd has one.
    pub(crate) accounting: Option<AccountingPaths>,
}

/// Paths of the accounting database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountingPaths {
    pub(crate) jobs: String,
    pub(crate) associations: String,
}

impl Api {
    /// The newest data parser in a list of paths that we are tested with, that offers all we need and is no newer than `newest`. Where SLURM is so
    /// new that it offers none of those, the one that is nearest to them.
    pub(crate) fn newest<'a>(paths: impl Iterator<Item = &'a str>, newest: u32) -> Option<Self> {
        let paths = paths.collect::<Vec<_>>();
        let mut versions = paths.iter().filter_map(|path| version(path)).collect::<Vec<_>>();
        versions.retain(|version| (OLDEST_PARSER..=newest).contains(version));
        versions.sort_by_key(|version| (*version > NEWEST_PARSER, version.abs_diff(NEWEST_PARSER)));
        versions.dedup();
        versions.into_iter().find_map(|version| Self::of_version(version, &paths))
    }

    fn of_version(version: u32, paths: &[&str]) -> Option<Self> {
        // The slash at the end comes and goes between versions, so paths are used as they are listed.
        let listed = |wanted: String| {
            paths.iter().find(|path| path.trim_end_matches('/') == wanted).map(|path| (*path).to_owned())
        };
        let slurm = |name: &str| listed(format!("/slurm/v0.0.{version}/{name}"));
        let accounting = |name: &str| listed(format!("/slurmdb/v0.0.{version}/{name}"));
        let (jobs, associations) = (accounting("jobs"), accounting("associations"));
        slurm("job/{job_id}")?;
        Some(Self {
            version,
            jobs: slurm("jobs")?,
            submit: slurm("job/submit")?,
            nodes: slurm("nodes")?,
            partitions: slurm("partitions")?,
            ping: slurm("ping")?,
            accounting: jobs.zip(associations).map(|(jobs, associations)| AccountingPaths { jobs, associations }),
        })
    }

    /// Path of one node. It is there in every data parser that we read.
    pub(crate) fn node(&self, name: &NodeName) -> String {
        format!("/slurm/{}/node/{name}", self.parser())
    }

    /// Path of one job.
    pub(crate) fn job(&self, id: u32) -> String {
        format!("/slurm/{}/job/{id}", self.parser())
    }

    /// Name of the data parser.
    pub(crate) fn parser(&self) -> String {
        format!("v0.0.{}", self.version)
    }
}

/// The newest data parser in a list of paths, where all are older than those that we read.
pub(crate) fn only_old<'a>(paths: impl Iterator<Item = &'a str>) -> Option<u32> {
    paths.filter_map(version).max().filter(|version| *version < OLDEST_PARSER)
}

fn version(path: &str) -> Option<u32> {
    path.strip_prefix("/slurm/v0.0.")?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(version: u32, slash: &str) -> Vec<String> {
        let slurm = ["jobs", "nodes", "partitions", "ping"].map(|name| format!("/slurm/v0.0.{version}/{name}{slash}"));
        let plain = ["job/submit", "job/{job_id}"].map(|name| format!("/slurm/v0.0.{version}/{name}"));
        let accounting = ["jobs", "associations"].map(|name| format!("/slurmdb/v0.0.{version}/{name}{slash}"));
        slurm.into_iter().chain(plain).chain(accounting).collect()
    }

    fn newest(paths: &[String]) -> Option<Api> {
        Api::newest(paths.iter().map(String::as_str), u32::MAX)
    }

    #[test]
    fn the_newest_whole_parser_is_taken_as_listed() {
        let all = [paths(39, "/"), paths(40, "/"), paths(42, "/"), paths(41, "")].concat();
        let api = newest(&all).unwrap();
        assert_eq!((api.parser().as_str(), api.jobs.as_str()), ("v0.0.42", "/slurm/v0.0.42/jobs/"));
        assert_eq!(api.job(7), "/slurm/v0.0.42/job/7");
        assert_eq!(api.node(&"c1".parse().unwrap()), "/slurm/v0.0.42/node/c1");
        let accounting = api.accounting.unwrap();
        assert_eq!(accounting.jobs, "/slurmdb/v0.0.42/jobs/");
        assert_eq!(accounting.associations, "/slurmdb/v0.0.42/associations/");
        assert_eq!(newest(&paths(43, "")).unwrap().jobs, "/slurm/v0.0.43/jobs");
        assert_eq!(Api::newest(all.iter().map(String::as_str), 41).unwrap().parser(), "v0.0.41");
    }

    #[test]
    fn the_newest_parser_that_both_know_is_taken() {
        for (offered, expected) in [
            (40..=42, "v0.0.42"),
            (41..=44, "v0.0.44"),
            (42..=45, "v0.0.45"),
            (43..=46, "v0.0.45"),
            // None that we are tested with.
            (46..=49, "v0.0.46"),
        ] {
            let all = offered.clone().map(|version| paths(version, "/")).collect::<Vec<_>>().concat();
            assert_eq!(newest(&all).unwrap().parser(), expected, "{offered:?}");
        }
    }

    #[test]
    fn half_a_parser_and_old_ones_are_not_taken() {
        let mut all = [paths(40, "/"), paths(41, "/")].concat();
        all.retain(|path| path != "/slurm/v0.0.41/job/submit");
        assert_eq!(newest(&all).unwrap().parser(), "v0.0.40");
        let old = [paths(38, "/"), paths(39, "/")].concat();
        assert_eq!((newest(&old), only_old(old.iter().map(String::as_str))), (None, Some(39)));
        assert_eq!(only_old(all.iter().map(String::as_str)), None);
        assert_eq!(newest(&["/slurm/v0.0.x/jobs".to_owned(), "/other".to_owned()]), None);
    }

    #[test]
    fn a_slurmrestd_without_accounting_is_taken() {
        let mut all = paths(42, "/");
        all.retain(|path| !path.starts_with("/slurmdb"));
        assert_eq!(newest(&all).unwrap().accounting, None);
    }
}
