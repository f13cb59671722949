//! The words of Eirene: domain types, typed ids, the ports to the outside world and the clock.
//!
//! Nothing here does I/O or knows axum, sqlx or SLURM's own words. Adapters implement the ports in
//! [`scheduler`], [`launcher`] and [`storage`]; services are written against them.

pub mod account;
pub mod alert;
pub mod audit;
pub mod clock;
pub mod confinement;
pub mod credential;
pub mod file_work;
pub mod id;
pub mod image;
pub mod job_file;
pub mod job_usage;
pub mod launcher;
pub mod name;
pub mod node_history;
pub mod old_files;
pub mod run;
pub mod scheduler;
pub mod scratch;
pub mod scratch_state;
pub mod secret;
pub mod sentence;
pub mod session;
pub mod space;
pub mod storage;
pub mod text;
pub mod trace;

pub use account::{Role, Scope, User, UserState};
pub use clock::{Clock, SystemClock};
pub use credential::{ApiToken, Login};
pub use id::{
    AlertId, ImageId, LoginId, OperationId, RequestId, SessionId, SilenceId, SpaceId, TokenId, UploadId, UserId,
};
pub use image::Image;
pub use name::{
    AccountName, AppName, DrainReason, FeatureName, GpuType, GroupName, ImageName, NameError, NodeName, PartitionName,
    ProjectName, QosName, RootName, SessionName, SpaceName, SpaceTitle, Username,
};
pub use run::RunProgram;
pub use scratch::{ScratchKind, ScratchSpec};
pub use scratch_state::{KeptOn, Rescue, RescueJob, ScratchPhase, ScratchState};
pub use sentence::Sentence;
pub use session::{Desired, JobKind, Reason, Resources, Session, SessionState};
pub use space::{Space, SpaceKind, SpaceOwner, SpaceState};
