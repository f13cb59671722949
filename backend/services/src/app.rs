//! What everything else is given: the configuration, the services, and the ports to the outside world.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use eirene_core::launcher::Launcher;
use eirene_core::scheduler::Scheduler;
use eirene_core::storage::SharedStorage;
use eirene_core::{Clock, UserId};
use eirene_database::Db;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::accounts::Accounts;
use crate::agents::TunnelRegistry;
use crate::agents::admission::AgentAdmission;
use crate::alerts::Alerts;
use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::cluster::overview::Overview;
use crate::config::Config;
use crate::efficiency::Efficiency;
use crate::events::Events;
use crate::file_processes::{FilesPool, Limits};
use crate::files::Files;
use crate::health::readiness::Readiness;
use crate::health::status::Status;
use crate::images::Images;
use crate::logins::Logins;
use crate::logs::Logs;
use crate::nodes::NodeReports;
use crate::nudge::Nudges;
use crate::old_files::OldFiles;
use crate::operations::Operations;
use crate::passwords::Passwords;
use crate::places::Places;
use crate::projects::Projects;
use crate::runs::Runs;
use crate::samples::{History, Samples};
use crate::scans::Scans;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::spaces::Spaces;
use crate::spaces::groups::GroupSource;
use crate::spaces::making::Making;
use crate::spaces::policing::Policing;
use crate::storage::Storage;
use crate::storage::limits::StorageLimits;
use crate::storage::stats::StorageStats;
use crate::storage::stripe::Stripes;
use crate::tokens::Tokens;
use crate::traces::Traces;
use crate::upkeep::Upkeep;
use crate::uploads::Uploads;
use crate::workers::Workers;
use crate::zabbix::Zabbix;

/// Streams a person may have open at once, over all pages and programs.
const MOST_STREAMS: usize = 32;

/// The ports to the outside world; tests put something else behind them.
#[derive(Clone)]
pub struct Ports {
    /// The database.
    pub db: Db,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The batch scheduler.
    pub scheduler: Arc<dyn Scheduler>,
    /// The privileged process.
    pub launcher: Arc<dyn Launcher>,
    /// The shared storage.
    pub storage: Arc<dyn SharedStorage>,
    /// The user database's groups.
    pub groups: Arc<dyn GroupSource>,
    /// What charts are made of instead of the built-in store, where the site has something.
    pub history: Option<Arc<dyn History>>,
    /// Where traces go.
    pub traces: Traces,
}

/// All [`Services`]; cheap to clone.
#[derive(Clone)]
pub struct App(Shared<Services>);

impl Deref for App {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

/// What [`App`] gives.
#[derive(Clone)]
pub struct Services {
    /// Configuration.
    pub config: Arc<Config>,
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Batch scheduler; only the poller, the reconcilers and [`Projects`] ask it.
    pub scheduler: Arc<dyn Scheduler>,
    /// Privileged process.
    pub launcher: Arc<dyn Launcher>,
    /// Sessions.
    pub sessions: Sessions,
    /// Runs.
    pub runs: Runs,
    /// Projects of people.
    pub projects: Projects,
    /// The cluster as last seen.
    pub cluster: Cluster,
    /// The cluster as each person sees it.
    pub overview: Overview,
    /// Image catalogue.
    pub images: Images,
    /// The storage as last seen.
    pub storage: Storage,
    /// Limits on the storage itself.
    pub storage_limits: StorageLimits,
    /// What the storage's servers do.
    pub storage_stats: StorageStats,
    /// How files are spread over targets.
    pub stripes: Stripes,
    /// Spaces.
    pub spaces: Spaces,
    /// Making them, and taking them away.
    pub making: Making,
    /// Their ends.
    pub policing: Policing,
    /// What is in them.
    pub files: Files,
    /// Work on them that outlives its request.
    pub operations: Operations,
    /// What takes the room in them.
    pub scans: Scans,
    /// What becomes of what nobody uses in them.
    pub old_files: OldFiles,
    /// What is on its way into them.
    pub uploads: Uploads,
    /// Events for open pages.
    pub events: Events,
    /// Audit log.
    pub audit: Audit,
    /// Logs of sessions.
    pub logs: Logs,
    /// What runs on the nodes of sessions.
    pub nodes: NodeReports,
    /// What sessions use.
    pub samples: Samples,
    /// What somebody should know now.
    pub alerts: Alerts,
    /// How well they use what they hold.
    pub efficiency: Efficiency,
    /// Nodes, for those who run the cluster.
    pub upkeep: Upkeep,
    /// The site's Zabbix.
    pub zabbix: Zabbix,
    /// People.
    pub accounts: Accounts,
    /// Browsers that are signed in.
    pub logins: Logins,
    /// API tokens.
    pub tokens: Tokens,
    /// Who may reach which app.
    pub access: Access,
    /// People's file processes.
    pub file_processes: Arc<FilesPool>,
    /// Which agents are let in.
    pub agent_admission: AgentAdmission,
    /// Agents that are connected.
    pub tunnels: TunnelRegistry,
    /// Bells of the reconcilers.
    pub nudges: Nudges,
    /// Where traces go.
    pub traces: Traces,
    /// How the reconcilers are doing.
    pub status: Status,
    /// How everything is doing that the portal depends on.
    pub readiness: Readiness,
    /// Who follows how much.
    pub streams: Places<UserId>,
    /// Threads that carry connections; none unless they were started.
    pub workers: Workers,
    /// Cancelled when eirened is to end.
    pub shutdown: CancellationToken,
}

impl App {
    /// Puts the services together. Starts nothing.
    pub fn build(config: Arc<Config>, ports: Ports, passwords: Passwords) -> Self {
        let Ports { db, clock, scheduler, launcher, storage, groups, history, traces } = ports;
        let nudges = Nudges::default();
        let audit = Audit::new(db.clone(), clock.clone());
        let events = Events::new(db.clone(), clock.clone(), audit.clone());
        let cluster = Cluster::default();
        let images = Images::new(db.clone(), clock.clone(), audit.clone());
        let logs = Logs::new(db.clone(), audit.clone(), config.server.state_dir.join("logs"));
        let tunnels = TunnelRegistry::default();
        let storage = Storage::new(storage, clock.clone(), &config);
        let storage_stats = StorageStats::new(storage.clone(), clock.clone(), db.clone());
        let stripes = Stripes::new(storage.clone(), clock.clone());
        let parts = crate::spaces::Parts {
            db: db.clone(),
            clock: clock.clone(),
            events: events.clone(),
            storage: storage.clone(),
            groups: Arc::clone(&groups),
            nudges: nudges.clone(),
        };
        let spaces = Spaces::new(parts, &config);
        let parts = crate::spaces::making::Parts {
            db: db.clone(),
            clock: clock.clone(),
            audit: audit.clone(),
            events: events.clone(),
            launcher: Arc::clone(&launcher),
            nudges: nudges.clone(),
            storage: storage.clone(),
            stripes: stripes.clone(),
            groups: Arc::clone(&groups),
        };
        let making = Making::new(parts, &config);
        let parts = crate::spaces::policing::Parts {
            db: db.clone(),
            clock: clock.clone(),
            audit: audit.clone(),
            events: events.clone(),
            launcher: Arc::clone(&launcher),
            nudges: nudges.clone(),
            storage: storage.clone(),
            groups: Arc::clone(&groups),
        };
        let policing = Policing::new(parts, &config);
        let limits = Limits { idle: Duration::from_secs(config.files.idle_s), ..Limits::default() };
        let file_processes = Arc::new(FilesPool::new(Arc::clone(&launcher), limits));
        let parts =
            crate::files::Parts { pool: Arc::clone(&file_processes), spaces: spaces.clone(), audit: audit.clone() };
        let files = Files::new(parts, &config);
        let operations = Operations::new(db.clone(), clock.clone(), events.clone());
        let kept = config.server.state_dir.join("scans");
        let scans = Scans::new(db.clone(), clock.clone(), files.clone(), spaces.clone(), operations.clone(), kept);
        let parts = crate::old_files::Parts {
            db: db.clone(),
            clock: clock.clone(),
            audit: audit.clone(),
            events: events.clone(),
            spaces: spaces.clone(),
            policing: policing.clone(),
            files: files.clone(),
            operations: operations.clone(),
        };
        let old_files = OldFiles::new(parts, &config, config.server.state_dir.join("old-files"));
        let uploads = Uploads::new(db.clone(), clock.clone(), files.clone(), config.files.upload_days);
        let kept = config.server.state_dir.join("samples");
        let samples = Samples::new(db.clone(), clock.clone(), events.clone(), history, kept, &config.samples);
        let overview = Overview::new(crate::cluster::overview::Parts {
            db: db.clone(),
            clock: clock.clone(),
            cluster: cluster.clone(),
            groups,
            samples: samples.clone(),
        });
        let efficiency = Efficiency::new(db.clone(), clock.clone(), samples.clone(), cluster.clone(), &config.samples);
        let parts = crate::alerts::Parts {
            db: db.clone(),
            clock: clock.clone(),
            audit: audit.clone(),
            events: events.clone(),
            samples: samples.clone(),
        };
        let alerts = Alerts::new(parts, &config.alerts);
        let upkeep = Upkeep::new(crate::upkeep::Parts {
            db: db.clone(),
            scheduler: Arc::clone(&scheduler),
            cluster: cluster.clone(),
            audit: audit.clone(),
            nudges: nudges.clone(),
        });
        let parts = crate::zabbix::Parts {
            db: db.clone(),
            clock: clock.clone(),
            cluster: cluster.clone(),
            samples: samples.clone(),
            tunnels: tunnels.clone(),
            upkeep: upkeep.clone(),
        };
        let zabbix = Zabbix::new(parts, &config.zabbix);
        let status = Status::default();
        let readiness = Readiness::new(crate::health::readiness::Parts {
            db: db.clone(),
            clock: clock.clone(),
            launcher: config.launcher.socket.clone(),
            cluster: cluster.clone(),
            storage: storage.clone(),
            samples: samples.clone(),
            zabbix: zabbix.clone(),
            traces: traces.clone(),
            alerts: alerts.clone(),
            status: status.clone(),
            tunnels: tunnels.clone(),
        });
        let agent_admission = AgentAdmission::new(db.clone(), clock.clone(), cluster.clone(), nudges.clone());
        let projects = Projects::new(Arc::clone(&scheduler), clock.clone());
        let nodes = NodeReports::default();
        let sessions = Sessions::new(crate::sessions::Parts {
            db: db.clone(),
            clock: clock.clone(),
            audit: audit.clone(),
            events: events.clone(),
            overview: overview.clone(),
            nudges: nudges.clone(),
            traces: traces.clone(),
            most_live: config.limits.live_sessions,
            scratch: config.scratch.clone(),
            spaces: spaces.clone(),
            projects: projects.clone(),
            most_runs: config.limits.live_runs,
        });
        let runs = Runs::new(sessions.clone(), logs.clone(), files.clone());
        let access = Access::new(db.clone(), clock.clone(), audit.clone(), Some(Arc::clone(&file_processes)));
        let accounts = Accounts::new(db.clone(), clock.clone(), audit.clone(), passwords, access.clone());
        let logins = Logins::new(db.clone(), clock.clone(), audit.clone(), accounts.clone(), access.clone());
        let tokens = Tokens::new(db.clone(), clock.clone(), audit.clone(), accounts.clone(), access.clone());
        Self(Shared::new(Services {
            config,
            db,
            clock,
            scheduler,
            launcher,
            sessions,
            runs,
            projects,
            cluster,
            overview,
            images,
            storage_limits: StorageLimits::new(storage.clone(), audit.clone()),
            storage_stats,
            stripes,
            storage,
            spaces,
            making,
            policing,
            files,
            operations,
            scans,
            old_files,
            uploads,
            events,
            audit,
            logs,
            nodes,
            samples,
            alerts,
            efficiency,
            upkeep,
            zabbix,
            accounts,
            logins,
            tokens,
            access,
            file_processes,
            agent_admission,
            tunnels,
            nudges,
            traces,
            status,
            readiness,
            streams: Places::new(MOST_STREAMS),
            workers: Workers::none(),
            shutdown: CancellationToken::new(),
        }))
    }

    /// The same with threads that carry connections.
    #[must_use]
    pub fn with_workers(&self, workers: Workers) -> Self {
        self.with(|services| services.workers = workers)
    }

    /// The same with a change.
    pub fn with(&self, change: impl FnOnce(&mut Services)) -> Self {
        let mut services = (**self).clone();
        change(&mut services);
        Self(Shared::new(services))
    }
}
