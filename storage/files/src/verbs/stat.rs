//! One entry, closely.

use eirene_files_protocol::{Answer, Code, EntryKind, HostileText, Link, Stat, Stated};

use crate::accounts::Id;
use crate::beneath::{Last, version};
use crate::server::Job;

pub(super) fn run(job: &Job, stat: &Stat) -> Result<Answer, Code> {
    let space = job.space(stat.space)?;
    let place = space.find(&stat.path, Last::Itself)?;
    let (kind, found) = place.look()?;
    let link = if kind == EntryKind::Link {
        let leads_to = space.find(&stat.path, Last::Followed).and_then(|place| place.look());
        Some(Link { target: HostileText(place.link_text()?), leads_to: leads_to.ok().map(|(kind, _)| kind) })
    } else {
        None
    };
    Ok(Answer::Stated(Stated {
        kind,
        version: version(&found),
        mode: found.stx_mode & 0o7777,
        owner: found.stx_uid,
        group: found.stx_gid,
        links: found.stx_nlink,
        on_disk: found.stx_blocks.saturating_mul(512),
        link,
        accounts: job.directory().names([Id::User(found.stx_uid), Id::Group(found.stx_gid)]),
    }))
}
