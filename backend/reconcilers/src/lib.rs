//! What happens without anybody asking: submitting, watching, stopping, repairing.
//!
//! A reconciler takes no input. It is woken by a bell, by a new snapshot or by its timer, looks at the database and at the snapshot, does
//! a bounded amount of work and reports. It may be killed at any line, because whatever it does is written so that the next run goes on from
//! the rows alone. A failure is the next run's business. The [poller] is the only one that looks at the scheduler regularly.

mod adopt;
mod alerts;
mod cluster_past;
mod driver;
mod housekeeping;
mod job_files;
mod job_usage;
mod lookup;
mod node_history;
mod observe;
mod old_files;
pub mod poller;
mod ready;
mod scratch_rescue;
mod see;
mod space_make;
mod space_policy;
mod space_usage;
mod stop;
mod storage_health;
mod submit;
#[cfg(test)]
mod tests;
mod upload_leftovers;
mod zabbix;

use std::time::Duration;

use tokio_util::task::TaskTracker;

pub use job_files::JobFiles;

use driver::{Wake, drive};
use eirene_services::app::App;

/// Longest wait for one answer of the scheduler, beyond what the adapter allows itself.
const SCHEDULER_WAIT: Duration = Duration::from_mins(1);

/// Starts all of them; they end when `app.shutdown` is cancelled.
pub fn start(app: &App, job_files: &JobFiles, tracker: &TaskTracker) {
    let every = Duration::from_secs;
    tracker.spawn(poller::Poller::new(app).run());
    let submit = submit::Submit::new(app.clone(), job_files.clone(), tracker.clone());
    let busy = submit.busy();
    tracker.spawn(drive(app.clone(), submit, every(5), Wake::Submit));
    tracker.spawn(drive(app.clone(), observe::Observe::new(app.clone(), job_files.clone()), every(30), Wake::Snapshot));
    tracker.spawn(drive(app.clone(), stop::Stop::new(app.clone(), job_files.clone(), busy), every(5), Wake::Stop));
    tracker.spawn(drive(app.clone(), adopt::Adopt::new(app.clone(), job_files.clone()), every(60), Wake::Snapshot));
    tracker.spawn(drive(app.clone(), ready::Ready::new(app.clone()), every(5), Wake::Timer));
    let rescue = scratch_rescue::ScratchRescue::new(app.clone(), job_files.clone());
    tracker.spawn(drive(app.clone(), rescue, every(30), Wake::Timer));
    tracker.spawn(drive(app.clone(), ready::Silence::new(app.clone()), every(5), Wake::Timer));
    tracker.spawn(drive(app.clone(), housekeeping::Rights::new(app.clone()), every(30), Wake::Timer));
    let health = storage_health::StorageHealth::new(app.clone());
    tracker.spawn(drive(app.clone(), health, every(app.config.storage.poll_interval_s), Wake::Timer));
    tracker.spawn(drive(app.clone(), cluster_past::NoteCluster::new(app.clone()), every(60), Wake::Timer));
    tracker.spawn(drive(app.clone(), alerts::LookForAlerts::new(app.clone()), every(5), Wake::Timer));
    tracker.spawn(drive(app.clone(), alerts::TellWebhook::new(app.clone()), every(5), Wake::Timer));
    tracker.spawn(drive(app.clone(), node_history::NodeHistory::new(app.clone()), every(10), Wake::Snapshot));
    tracker.spawn(drive(app.clone(), job_usage::MeasureJobs::new(app.clone()), every(60), Wake::Timer));
    tracker.spawn(drive(app.clone(), space_usage::SpaceUsage::new(app.clone()), every(300), Wake::Timer));
    tracker.spawn(drive(app.clone(), space_make::SpaceMake::new(app.clone()), every(30), Wake::Spaces));
    let policy = space_policy::SpacePolicy::new(app.clone());
    tracker.spawn(drive(app.clone(), policy, space_policy::EVERY, Wake::Timer));
    let old = old_files::OldFiles::new(app.clone());
    tracker.spawn(drive(app.clone(), old, space_policy::EVERY, Wake::Timer));
    let leftovers = upload_leftovers::UploadLeftovers::new(app.clone());
    tracker.spawn(drive(app.clone(), leftovers, every(3600), Wake::Timer));
    if app.config.zabbix.server.is_some() {
        let period = every(app.config.zabbix.period_s);
        tracker.spawn(drive(app.clone(), zabbix::TellZabbix::new(app.clone()), period, Wake::Timer));
    }
    tracker.spawn(drive(app.clone(), housekeeping::Retention::new(app.clone()), every(600), Wake::Timer));
}
