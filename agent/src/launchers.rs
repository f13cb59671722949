//! What launchers that know nothing of Eirene find in a session of several nodes: `eirene-rsh` in the PATH, also as `ssh`, files that name the
//! nodes, and variables that say where all of that is. So `mpirun` and others start on all nodes as they are.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::app::RUNTIME;
use crate::container::GUARD;
use crate::steps::STEPS_SOCKET;

/// The names of the program that speaks ssh's command line.
pub(crate) const RSH: &str = "eirene-rsh";
pub(crate) const SSH: &str = "ssh";
/// Its directory, in the runtime directory.
const PROGRAMS: &str = "bin";
/// Nodes as Open MPI and DeepSpeed read them, `c1 slots=2`, and as MPICH does, `c1:2`.
const HOSTFILE: &str = "hostfile";
const MACHINEFILE: &str = "machinefile";
/// Says which of the session's nodes this is.
pub(crate) const NODE_RANK: &str = "EIRENE_NODE_RANK";

/// The step socket, as seen in a container.
pub(crate) fn socket() -> PathBuf {
    Path::new(RUNTIME).join(STEPS_SOCKET)
}

/// Writes links and files into the part of a runtime directory that the container sees, for a session of these nodes; nothing for a single one.
pub(crate) fn furnish(inside: &Path, nodes: &[(String, u32)]) -> io::Result<()> {
    if nodes.len() < 2 {
        return Ok(());
    }
    let programs = inside.join(PROGRAMS);
    std::fs::DirBuilder::new().mode(0o700).create(&programs)?;
    for name in [RSH, SSH] {
        symlink(GUARD, programs.join(name))?;
    }
    let list = |between: &str| {
        nodes.iter().fold(String::new(), |mut text, (node, processors)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{node}{between}{processors}");
            text
        })
    };
    std::fs::write(inside.join(HOSTFILE), list(" slots="))?;
    std::fs::write(inside.join(MACHINEFILE), list(":"))
}

/// The variables of a session of these nodes, on one of them; none for a single one.
pub(crate) fn variables(nodes: &[(String, u32)], here: &str) -> Vec<(String, String)> {
    let [(first, _), _, ..] = nodes else { return Vec::new() };
    let rsh = format!("{RUNTIME}/{PROGRAMS}/{RSH}");
    let (hostfile, machinefile) = (format!("{RUNTIME}/{HOSTFILE}"), format!("{RUNTIME}/{MACHINEFILE}"));
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    let rank = names.iter().position(|name| *name == here).unwrap_or_default();
    [
        ("EIRENE_NODES", names.join(" ")),
        ("EIRENE_NODE_COUNT", names.len().to_string()),
        (NODE_RANK, rank.to_string()),
        ("EIRENE_HOSTFILE", hostfile.clone()),
        // Where ranks of torch's meet. No port: with one, programs would take every process for a rank of a world.
        ("MASTER_ADDR", first.clone()),
        // Open MPI 5, by PRRTE. The variables of SLURM that are here are the app's, and no way to start anything in a container.
        ("PRTE_MCA_plm", "ssh".to_owned()),
        ("PRTE_MCA_plm_ssh_agent", rsh.clone()),
        ("PRTE_MCA_ras", "^slurm".to_owned()),
        ("PRTE_MCA_prte_default_hostfile", hostfile.clone()),
        // Open MPI 4.
        ("OMPI_MCA_plm", "rsh".to_owned()),
        ("OMPI_MCA_plm_rsh_agent", rsh.clone()),
        ("OMPI_MCA_ras", "^slurm".to_owned()),
        ("OMPI_MCA_orte_default_hostfile", hostfile),
        // MPICH and what descends from it.
        ("HYDRA_LAUNCHER", SSH.to_owned()),
        ("HYDRA_LAUNCHER_EXEC", rsh.clone()),
        ("HYDRA_RMK", "user".to_owned()),
        ("HYDRA_HOST_FILE", machinefile.clone()),
        ("I_MPI_HYDRA_BOOTSTRAP", SSH.to_owned()),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", rsh),
        ("I_MPI_HYDRA_RMK", "user".to_owned()),
        ("I_MPI_HYDRA_HOST_FILE", machinefile),
        ("PDSH_RCMD_TYPE", SSH.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The PATH of programs in the container: the image's own, behind the launchers' where there are some. Before it, because an image's own ssh
/// would know no node of the session; all that is not about the session is handed on to that.
pub(crate) fn path(own: Option<OsString>) -> Option<OsString> {
    let programs = Path::new(RUNTIME).join(PROGRAMS);
    if !programs.is_dir() {
        return own;
    }
    with(&programs, own)
}

fn with(programs: &Path, own: Option<OsString>) -> Option<OsString> {
    let own = own.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let parts = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&own));
    std::env::join_paths(parts).ok().or(Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<(String, u32)> {
        vec![("c1".into(), 4), ("d7".into(), 2)]
    }

    #[test]
    fn launchers_find_program_and_nodes() {
        let directory = tempfile::tempdir().unwrap();
        furnish(directory.path(), &nodes()).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("hostfile"), "c1 slots=4\nd7 slots=2\n");
        assert_eq!(read("machinefile"), "c1:4\nd7:2\n");
        for name in [RSH, SSH] {
            assert_eq!(std::fs::read_link(directory.path().join("bin").join(name)).unwrap(), Path::new(GUARD));
        }
        let path = with(&directory.path().join("bin"), Some("/opt/x/bin:/usr/bin".into())).unwrap();
        assert_eq!(path.to_str().unwrap(), format!("{}/bin:/opt/x/bin:/usr/bin", directory.path().display()));
    }

    #[test]
    fn a_session_of_one_node_has_nothing_of_it() {
        let directory = tempfile::tempdir().unwrap();
        furnish(directory.path(), &nodes()[..1]).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(variables(&nodes()[..1], "c1").is_empty());
    }

    #[test]
    fn every_node_knows_its_number_and_nobody_is_taken_for_a_rank() {
        let variables = variables(&nodes(), "d7");
        let get = |wanted: &str| variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        assert_eq!(
            (get("EIRENE_NODES"), get("EIRENE_NODE_COUNT"), get(NODE_RANK)),
            (Some("c1 d7"), Some("2"), Some("1"))
        );
        assert_eq!(get("MASTER_ADDR"), Some("c1"));
        for rank_s in ["RANK", "WORLD_SIZE", "MASTER_PORT"] {
            assert_eq!(get(rank_s), None, "{rank_s}");
        }
    }
}
