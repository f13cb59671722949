//! The database, and what its rows say of images, of nodes and of spaces that groups share.

use std::path::Path;

use eirene_core::Space;
use eirene_core::confinement::{ConfinedNode, Confinement};
use eirene_database::Db;
use eirene_services::config::Config;
use eirene_services::spaces::NOT_SHARED;
use secrecy::ExposeSecret as _;

use super::Finding;
use crate::commands::open;

/// Nodes that are called by their names.
const MOST_NAMED: usize = 5;

pub(super) async fn open_database(config: &Config) -> anyhow::Result<(Db, String)> {
    let url = config.database_url()?;
    if let Some(path) = url.expose_secret().strip_prefix("sqlite://") {
        let path = path.split('?').next().unwrap_or(path);
        anyhow::ensure!(Path::new(path).exists(), "`{path}` is not there yet: eirened migrate");
    }
    let db = open::database(config).await?;
    db.ping().await?;
    let (found, newest) = (db.schema_version().await?, Db::newest_schema_version());
    anyhow::ensure!(found == Some(newest), "its form is {found:?}, this version's is {newest}: eirened migrate");
    Ok((db, format!("answers; form {newest}")))
}

pub(super) async fn images(database: Option<&(Db, String)>) -> Finding {
    let Some((db, _)) = database else { return Finding::Doubtful("not looked at without the database".into()) };
    let images = match db.images().await {
        Ok(images) => images,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    for image in &images {
        let looked = tokio::fs::metadata(&image.path).await;
        let problem = match looked {
            Err(error) => error.to_string(),
            Ok(metadata) if i64::try_from(metadata.len()).ok() != Some(image.size_bytes) => {
                "another size than when it was added".into()
            }
            Ok(_) => continue,
        };
        return Finding::Broken(format!("`{}` ({}): {problem}", image.name, image.path));
    }
    match images.len() {
        0 => Finding::Doubtful("the catalogue is empty: eirened image add".into()),
        count => Finding::Good(format!("{count} in the catalogue, files in place")),
    }
}

/// What holds jobs to what they have asked for, as agents on the nodes have last said.
pub(super) async fn confinement(database: Option<&(Db, String)>) -> Finding {
    let Some((db, _)) = database else { return Finding::Doubtful("not looked at without the database".into()) };
    let nodes = match db.confined_nodes().await {
        Ok(nodes) => nodes,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    let all = nodes.len();
    if all == 0 {
        return Finding::Good("not known yet: the first session on a node tells".into());
    }
    let has_groups = |node: &ConfinedNode| node.by != Confinement::Nothing;
    let wrong: Vec<String> = [
        told_on(
            &nodes,
            "nothing holds jobs to the CPUs and memory they have asked for",
            "`TaskPlugin=task/cgroup` in slurm.conf, `ConstrainCores` and `ConstrainRAMSpace` in cgroup.conf",
            |node| !has_groups(node),
        ),
        told_on(
            &nodes,
            "jobs have control groups that do not confine their memory",
            "`ConstrainRAMSpace` in cgroup.conf, with `TaskPlugin=task/cgroup`",
            |node| has_groups(node) && node.held.memory == Some(false),
        ),
        told_on(
            &nodes,
            "jobs have control groups that do not confine their CPUs",
            "`ConstrainCores` in cgroup.conf, with `TaskPlugin=task/cgroup`",
            |node| has_groups(node) && node.held.cpus == Some(false),
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !wrong.is_empty() {
        return Finding::Doubtful(wrong.join("; "));
    }
    let held = |node: &&ConfinedNode| (node.held.memory, node.held.cpus) == (Some(true), Some(true));
    let confined = nodes.iter().filter(held).count();
    let others = if confined < all {
        "; on the others the last session could not tell (an older agent, or a job with all CPUs or all memory of its node): \
         `ConstrainCores` and `ConstrainRAMSpace` in cgroup.conf say it"
    } else {
        ""
    };
    Finding::Good(format!("control groups confine memory and CPUs of jobs on {confined} of {all} nodes{others}"))
}

/// What is wrong on some of the nodes, which they are, and what to do; none where it is wrong on none.
fn told_on(nodes: &[ConfinedNode], what: &str, cure: &str, is_so: impl Fn(&ConfinedNode) -> bool) -> Option<String> {
    let found: Vec<&str> = nodes.iter().filter(|node| is_so(node)).map(|node| node.node.as_str()).collect();
    let named = found.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if found.len() > MOST_NAMED { " and others" } else { "" };
    (!found.is_empty()).then(|| format!("{what} on {} of {} nodes ({named}{more}): {cure}", found.len(), nodes.len()))
}

/// Spaces of groups whose file system keeps no access lists, as was found when they were made.
pub(super) async fn sharing(database: Option<&(Db, String)>) -> Finding {
    let Some((db, _)) = database else { return Finding::Doubtful("not looked at without the database".into()) };
    let spaces = match db.spaces_of_groups().await {
        Ok(spaces) => spaces,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    let is_unshared = |space: &&Space| space.reason.as_ref().is_some_and(|reason| reason.code == NOT_SHARED);
    let unshared: Vec<&str> = spaces.iter().filter(is_unshared).map(|space| space.name.as_str()).collect();
    if unshared.is_empty() {
        return Finding::Good("no group's space was found without a default access list when it was made".into());
    }
    let named = unshared.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if unshared.len() > MOST_NAMED { " and others" } else { "" };
    Finding::Doubtful(format!(
        "{} spaces of groups have no default access list ({named}{more}), because their file system keeps none: what one makes \
         in them the others can write only with `umask 002`; turn access lists on (BeeGFS: `sysACLsEnabled`), or set that umask for all",
        unshared.len()
    ))
}

#[cfg(test)]
mod tests {
    use eirene_core::confinement::Held;
    use eirene_core::{Clock as _, Reason, SpaceOwner, SystemClock};
    use eirene_services::spaces::testing::a_space;
    use eirene_services::testing::TestApp;

    use super::*;

    #[tokio::test]
    async fn nodes_on_which_nothing_holds_jobs_are_named() {
        let test = TestApp::new().await;
        let database = (test.app.db.clone(), String::new());
        let says = async |node: &str, by, held| {
            let confined = ConfinedNode { node: node.parse().unwrap(), by, held, at: SystemClock.now() };
            database.0.put_confined_node(&confined).await.unwrap();
            confinement(Some(&database)).await
        };
        assert!(matches!(confinement(None).await, Finding::Doubtful(_)));
        let unknown = confinement(Some(&database)).await;
        assert!(matches!(&unknown, Finding::Good(text) if text.contains("not known yet")), "{unknown:?}");
        let older = says("c1", Confinement::CgroupV2, Held::default()).await;
        assert!(matches!(&older, Finding::Good(text) if text.contains("on 0 of 1 nodes; on the others")), "{older:?}");
        let both = Held { memory: Some(true), cpus: Some(true) };
        let held = says("c1", Confinement::CgroupV2, both).await;
        assert!(matches!(&held, Finding::Good(text) if text.ends_with("on 1 of 1 nodes")), "{held:?}");
        let free = says("c2", Confinement::Nothing, Held::NOTHING).await;
        assert!(matches!(&free, Finding::Doubtful(text) if text.contains("on 1 of 2 nodes (c2)")), "{free:?}");
        for node in ["d1", "d2", "d3", "d4", "d5"] {
            says(node, Confinement::Nothing, Held::NOTHING).await;
        }
        let many = confinement(Some(&database)).await;
        let named = "on 6 of 7 nodes (c2, d1, d2, d3, d4 and others)";
        assert!(matches!(&many, Finding::Doubtful(text) if text.contains(named)), "{many:?}");
    }

    #[tokio::test]
    async fn groups_that_only_count_are_doubtful_too() {
        let test = TestApp::new().await;
        let database = (test.app.db.clone(), String::new());
        let says = async |node: &str, memory, cpus| {
            let (node, held) = (node.parse().unwrap(), Held { memory, cpus });
            let confined = ConfinedNode { node, by: Confinement::CgroupV2, held, at: SystemClock.now() };
            database.0.put_confined_node(&confined).await.unwrap();
            confinement(Some(&database)).await
        };
        let (yes, no) = (Some(true), Some(false));
        let (memory, cpus) = ("do not confine their memory on", "do not confine their CPUs on");
        let no_cpus = says("c1", yes, no).await;
        let expected = |text: &str| text.contains(&format!("{cpus} 1 of 1 nodes (c1)")) && !text.contains(memory);
        assert!(matches!(&no_cpus, Finding::Doubtful(text) if expected(text)), "{no_cpus:?}");
        let neither = says("c2", no, no).await;
        let expected = |text: &str| {
            text.contains(&format!("{memory} 1 of 2 nodes (c2): `ConstrainRAMSpace`"))
                && text.contains(&format!("{cpus} 2 of 2 nodes (c1, c2): `ConstrainCores`"))
        };
        assert!(matches!(&neither, Finding::Doubtful(text) if expected(text)), "{neither:?}");
        says("c1", yes, yes).await;
        let in_part = says("c2", yes, None).await;
        assert!(matches!(&in_part, Finding::Good(text) if text.contains("on 1 of 2 nodes; on")), "{in_part:?}");
    }

    #[tokio::test]
    async fn spaces_in_which_a_group_cannot_write_what_its_people_make_are_named() {
        let test = TestApp::new().await;
        let database = (test.app.db.clone(), String::new());
        assert!(matches!(sharing(Some(&database)).await, Finding::Good(_)));
        assert!(matches!(sharing(None).await, Finding::Doubtful(_)));
        let space = a_space(SpaceOwner::Group("physics".parse().unwrap()));
        let unshared = Space { reason: Some(Reason::new(NOT_SHARED, eirene_words::say("space.not_shared"))), ..space };
        let unshared = test.app.db.insert_space(unshared, &[]).await.unwrap();
        let found = sharing(Some(&database)).await;
        let named = format!("({})", unshared.name);
        assert!(
            matches!(&found, Finding::Doubtful(text) if text.contains(&named) && text.contains("umask")),
            "{found:?}"
        );
    }
}
