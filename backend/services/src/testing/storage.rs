//! A storage and a user database in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use eirene_core::storage::{
    Ability, Bytes, Capabilities, Consistency, Counted, DefaultQuota, Doubt, Entry, EntryKind, FileSystem, Files,
    Identity, Known, Limit, NodeId, OperationCounts, OperationsKind, Partial, Pattern, Place, Pool, PoolId, Quota,
    QuotaId, QuotaOf, QuotaRange, Reach, Role, Room, ServerNode, ServerSample, SetStripe, SharedStorage, StorageError,
    Stripe, Target, TargetId, Why,
};
use eirene_core::{GroupName, Username};
use tokio::sync::Notify;

use crate::spaces::access::GroupsAway;
use crate::spaces::groups::GroupSource;

const GIB: u64 = 1 << 30;

/// How a storage answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageMood {
    Good,
    Away,
    Refuses,
    NotThere,
    /// Answers what cannot be understood.
    Mumbles,
}

/// What a storage in memory says and was asked.
pub struct StorageState {
    pub mood: StorageMood,
    /// A root on another file system, which does not answer.
    pub away_root: Option<&'static str>,
    /// A root on another file system, where whoever asks waits for ever, and what rings then.
    pub endless_root: Option<(&'static str, Arc<Notify>)>,
    /// Whether homes are not shown.
    pub refuses_homes: bool,
    /// Of every directory: used bytes and limit, where it has a quota of its own.
    pub directory: Option<(u64, Limit<u64>)>,
    /// Of every home's person: used bytes and limit, where the file system counts for them.
    pub person: Option<(u64, Limit<u64>)>,
    /// What the kernel calls the file system that everything lies on.
    pub kind: &'static str,
    /// Of users: used bytes and limit; none where there are no such quotas.
    pub users: Option<(u64, Limit<u64>)>,
    /// Pools in which users have quotas, where there are several: in each they use as many times as much as its number.
    pub quota_pools: Vec<u16>,
    /// Limits are set at once, and the answer comes when this rings.
    pub answers_at: Option<Arc<Notify>>,
    /// Limits that were set: whose, in which pool.
    pub limits_set: Vec<(QuotaId, Option<PoolId>, Option<Limit<Bytes>>)>,
    /// What is doubtful about every answer to what users use.
    pub quota_doubts: Vec<Doubt>,
    /// Why nobody's limit is told, where it is not; then none that is set can be read back either.
    pub limit_missing: Option<Why>,
    /// Tells limits, and sets none.
    pub refuses_limits: bool,
    /// Tells limits, and answers what cannot be understood where one is to be set; none is.
    pub mumbles_of_limits: bool,
    /// The storage's servers, where it tells them.
    pub nodes: Option<Vec<ServerNode>>,
    /// The storage's pools, where it tells them.
    pub pools: Option<Vec<u16>>,
    /// A user's bytes, of those who have no limit of their own; none where there are no defaults.
    pub defaults: Option<Limit<u64>>,
    /// Free bytes of 1000 GiB.
    pub free: u64,
    /// What the marker of every root holds.
    pub marker: Option<&'static str>,
    /// Spaces and homes whose quota was asked for.
    pub looks: Vec<String>,
    /// Numbers whose quotas were asked for: from, and to.
    pub questions: Vec<(u32, u32)>,
    /// Counts of users and clients, where there are such.
    pub operations: Option<Vec<OperationCounts>>,
    /// What servers did in any second, where they say.
    pub servers: Option<Vec<ServerSample>>,
    /// How files of every directory are spread, where they are.
    stripe: Option<Stripe>,
    /// Whether a pattern that is set stays.
    pub keeps_stripes: bool,
    /// Sets the next pattern and loses the answer, as when whoever asked is killed in between.
    pub loses_an_answer: bool,
    targets: u32,
    /// Directories whose pattern was asked for.
    pub entries: Vec<String>,
    /// Whether the one target of the storage servers says nothing.
    pub silent: bool,
    /// Whether default limits are asked for in vain.
    pub defaults_hang: bool,
    /// Whether the storage's tool cannot be run.
    pub no_tool: bool,
}

impl StorageState {
    /// Takes the limits out of an answer, where they are not to be told.
    fn lose_limits(&self, quotas: &mut [Quota]) {
        if let Some(why) = self.limit_missing {
            for quota in quotas {
                quota.limit = Known::Missing(why);
            }
        }
    }

    /// Files are spread over two of so many targets from now on.
    pub fn spread_over(&mut self, targets: u32) {
        self.targets = targets;
        self.pools.get_or_insert(vec![1]);
        self.stripe = Some(Stripe {
            pattern: Pattern::Raid0,
            chunk: Known::Known(Bytes(512 << 10)),
            targets_wanted: Known::Known(2),
            targets: vec![],
            pool: Known::Known((PoolId(1), "Default".into())),
        });
    }
}

/// What a storage server did in one second; of what it read nothing is known.
pub fn server_sample() -> ServerSample {
    ServerSample {
        node: Known::Known(NodeId { role: Role::Storage, number: 3, alias: Some("oss3".into()) }),
        at_s: 1_795_242_755,
        written: Known::Known(Bytes(4096)),
        read: Known::Missing(Why::NotSupported),
        requests: 7,
        queued: 1,
        busy: 2,
    }
}

/// A storage in memory, with as many roots as anybody asks for.
#[derive(Clone)]
pub struct FakeStorage {
    state: Arc<Mutex<StorageState>>,
}

impl Default for FakeStorage {
    fn default() -> Self {
        let state = StorageState {
            mood: StorageMood::Good,
            away_root: None,
            endless_root: None,
            refuses_homes: false,
            directory: None,
            person: None,
            kind: "xfs",
            users: None,
            quota_pools: vec![],
            answers_at: None,
            limits_set: vec![],
            quota_doubts: vec![],
            limit_missing: None,
            refuses_limits: false,
            mumbles_of_limits: false,
            nodes: None,
            pools: None,
            defaults: None,
            free: 500 * GIB,
            marker: Some("00ff"),
            looks: vec![],
            questions: vec![],
            operations: None,
            servers: None,
            stripe: None,
            keeps_stripes: true,
            loses_an_answer: false,
            targets: 0,
            entries: vec![],
            silent: false,
            defaults_hang: false,
            no_tool: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }
}

impl FakeStorage {
    pub fn state(&self) -> MutexGuard<'_, StorageState> {
        self.state.lock().unwrap()
    }

    fn asked(&self) -> Result<MutexGuard<'_, StorageState>, StorageError> {
        let state = self.state();
        match state.mood {
            StorageMood::Good => Ok(state),
            StorageMood::Away => Err(StorageError::Away { source: None, retry_after_s: 10 }),
            StorageMood::Refuses => Err(StorageError::Refused { why: Why::Refused, text: "no".into() }),
            StorageMood::Mumbles => Err(StorageError::Malformed { what: "it mumbles".into() }),
            StorageMood::NotThere => Err(StorageError::NoSuchPlace { path: "/nowhere".into() }),
        }
    }

    fn asked_at(&self, place: &Place) -> Result<MutexGuard<'_, StorageState>, StorageError> {
        let state = self.asked()?;
        match place {
            Place::Home(_) | Place::InHome { .. } if state.refuses_homes => {
                Err(StorageError::Refused { why: Why::Refused, text: "no home".into() })
            }
            Place::Root(root) | Place::Space { root, .. } | Place::OwnSpace { root, .. }
                if state.away_root == Some(root.as_str()) =>
            {
                Err(StorageError::Away { source: None, retry_after_s: 10 })
            }
            Place::Home(_) | Place::InHome { .. } | Place::Root(_) | Place::Space { .. } | Place::OwnSpace { .. } => {
                Ok(state)
            }
        }
    }
}

async fn rung(bell: Option<Arc<Notify>>) {
    if let Some(bell) = bell {
        bell.notified().await;
    }
}

fn quota(id: QuotaId, (used, limit): (u64, Limit<u64>)) -> Quota {
    Quota {
        id,
        pool: None,
        used: Known::Known(Bytes(used)),
        limit: Known::Known(limit.map(Bytes)),
        files_used: Known::Missing(Why::NotEnabled),
        files_limit: Known::Missing(Why::NotEnabled),
        counted: Counted::Inodes,
        files_at_least: false,
        measured_every_s: Known::Missing(Why::NotSupported),
    }
}

/// What somebody uses in each pool: as many times as much as its number; where there are none, in all of it.
fn in_pools(pools: &[u16], id: QuotaId, said: (u64, Limit<u64>)) -> Vec<Quota> {
    if pools.is_empty() {
        return vec![quota(id, said)];
    }
    let of_pool = |pool: &u16| Quota { pool: Some(PoolId(*pool)), ..quota(id, (said.0 * u64::from(*pool), said.1)) };
    pools.iter().map(of_pool).collect()
}

#[async_trait]
impl SharedStorage for FakeStorage {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn capabilities(&self) -> Capabilities {
        let state = self.state();
        let version = if state.no_tool { Known::Missing(Why::DidNotAnswer) } else { Known::Missing(Why::NotSupported) };
        let can = |yes: bool| if yes { Ability::Yes } else { Ability::No(Why::NotSupported) };
        Capabilities {
            quota_read: can(state.users.is_some()),
            quota_write: can(state.users.is_some()),
            stripe_read: can(state.stripe.is_some()),
            server_stats: can(state.servers.is_some()),
            user_stats: can(state.operations.is_some()),
            version,
            ..Capabilities::none("fake")
        }
    }

    async fn file_system(&self, place: &Place) -> Result<FileSystem, StorageError> {
        match place {
            Place::Home(person) => self.state().looks.push(format!("~{person}")),
            Place::Space { name, .. } => self.state().looks.push(name.to_string()),
            Place::InHome { .. } | Place::OwnSpace { .. } | Place::Root(_) => {}
        }
        let endless = self.state().endless_root.clone();
        if let (Some((endless, bell)), Place::Root(root) | Place::Space { root, .. }) = (endless, place)
            && root.as_str() == endless
        {
            bell.notify_one();
            return std::future::pending().await;
        }
        let (free, marker, kind) = {
            let said = self.asked_at(place)?;
            (said.free, said.marker.map(str::to_owned), said.kind)
        };
        Ok(FileSystem {
            total: Bytes(1000 * GIB),
            available: Bytes(free),
            inodes_total: Known::Known(Files(1000)),
            inodes_available: Known::Known(Files(500)),
            read_only: false,
            client_version: None,
            identity: Identity {
                kind: kind.into(),
                source: "/dev/sdb1".into(),
                root_inode: Some(128),
                marker,
                fs_id: 1,
                mount_id: 2,
            },
        })
    }

    async fn directory_quota(&self, _place: &Place) -> Result<Known<Quota>, StorageError> {
        let (directory, kind) = {
            let said = self.asked()?;
            (said.directory, said.kind)
        };
        let why = if kind == "xfs" { Why::NotEnabled } else { Why::NotSupported };
        Ok(directory.map_or(Known::Missing(why), |said| Known::Known(quota(QuotaId::Project(7), said))))
    }

    async fn person_quota(&self, place: &Place) -> Result<Known<Quota>, StorageError> {
        let person = self.asked()?.person.filter(|_| matches!(place, Place::Home(_) | Place::OwnSpace { .. }));
        Ok(person.map_or(Known::Missing(Why::NotEnabled), |said| Known::Known(quota(QuotaId::User(2001), said))))
    }

    async fn nodes(&self) -> Result<Partial<Vec<ServerNode>>, StorageError> {
        let value = self.state().nodes.clone().ok_or(StorageError::Unsupported("servers"))?;
        Ok(Partial { value, doubts: vec![] })
    }

    async fn pools(&self) -> Result<Partial<Vec<Pool>>, StorageError> {
        let state = self.asked()?;
        let pools = state.pools.as_ref().ok_or(StorageError::Unsupported("pools"))?;
        let pool = |number: &u16| Pool {
            id: PoolId(*number),
            name: if *number == 1 { "Default".into() } else { format!("pool {number}") },
            targets: (1..=state.targets).collect(),
            mirrors: vec![],
        };
        Ok(Partial { value: pools.iter().map(pool).collect(), doubts: vec![] })
    }

    async fn targets(&self) -> Result<Partial<Vec<Target>>, StorageError> {
        let state = self.asked()?;
        if !state.silent {
            return Err(StorageError::Unsupported("targets"));
        }
        let missing = Known::Missing(Why::DidNotAnswer);
        let target = Target {
            id: TargetId { role: Role::Storage, number: 1 },
            node: Known::Missing(Why::NotSupported),
            alias: None,
            pool: None,
            reach: Reach::Online,
            consistency: Consistency::Good,
            room: Room::Normal,
            total: missing,
            free: missing,
            inodes_total: Known::Missing(Why::DidNotAnswer),
            inodes_free: Known::Missing(Why::DidNotAnswer),
            precision: Bytes(1),
            inodes_precision: Files(1),
            last_contact_s: Known::Missing(Why::NotSupported),
        };
        Ok(Partial { value: vec![target], doubts: vec![] })
    }

    async fn entry(&self, place: &Place) -> Result<Entry, StorageError> {
        let mut state = self.asked_at(place)?;
        let stripe = state.stripe.clone().ok_or(StorageError::Unsupported("stripe patterns"))?;
        state.entries.push(match place {
            Place::Home(person) => format!("~{person}"),
            Place::InHome { person, below } => format!("~{person}/{}", below.as_str()),
            Place::Root(root) => root.to_string(),
            Place::OwnSpace { name, .. } => name.to_string(),
            Place::Space { name, below, .. } => {
                below.as_ref().map_or_else(|| name.to_string(), |below| format!("{name}/{}", below.as_str()))
            }
        });
        Ok(Entry {
            kind: EntryKind::Directory,
            entry_id: "0-1".into(),
            metadata_node: Known::Missing(Why::NotSupported),
            metadata_mirrored: Known::Known(false),
            stripe: Known::Known(stripe),
        })
    }

    async fn set_stripe(&self, _place: &Place, wanted: &SetStripe) -> Result<(), StorageError> {
        let mut state = self.asked()?;
        if !state.keeps_stripes {
            return Err(StorageError::Malformed { what: "what was set is not there".into() });
        }
        let stripe = state.stripe.as_mut().ok_or(StorageError::Unsupported("stripe patterns"))?;
        stripe.chunk = wanted.chunk.map_or(stripe.chunk, Known::Known);
        stripe.targets_wanted = wanted.targets.map_or(stripe.targets_wanted, Known::Known);
        if std::mem::take(&mut state.loses_an_answer) {
            return Err(StorageError::Away { source: None, retry_after_s: 10 });
        }
        Ok(())
    }

    async fn server_stats(&self, _role: Role, _seconds: u32) -> Result<Partial<Vec<ServerSample>>, StorageError> {
        let value = self.asked()?.servers.clone().ok_or(StorageError::Unsupported("statistics of servers"))?;
        Ok(Partial { value, doubts: vec![] })
    }

    async fn operations(&self, _: Role, _: OperationsKind) -> Result<Partial<Vec<OperationCounts>>, StorageError> {
        let value = self.asked()?.operations.clone().ok_or(StorageError::Unsupported("statistics of users"))?;
        Ok(Partial { value, doubts: vec![] })
    }

    async fn quota(&self, id: QuotaId) -> Result<Partial<Vec<Quota>>, StorageError> {
        let state = self.asked()?;
        let said = state.users.ok_or(StorageError::Unsupported("quotas"))?;
        let mut value = in_pools(&state.quota_pools, id, said);
        state.lose_limits(&mut value);
        Ok(Partial { value, doubts: state.quota_doubts.clone() })
    }

    async fn set_quota(
        &self,
        id: QuotaId,
        pool: Option<PoolId>,
        size: Option<Limit<Bytes>>,
        _files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        let (bell, missing) = {
            let mut state = self.asked()?;
            let (used, limit) = state.users.ok_or(StorageError::Unsupported("quotas"))?;
            if state.refuses_limits {
                return Err(StorageError::Refused { why: Why::NotEnabled, text: "quotas are not enforced".into() });
            }
            if state.mumbles_of_limits {
                return Err(StorageError::Malformed { what: "it mumbles".into() });
            }
            state.limits_set.push((id, pool, size));
            state.users = Some((used, size.map_or(limit, |size| size.map(|bytes| bytes.0))));
            (state.answers_at.clone(), state.limit_missing)
        };
        rung(bell).await;
        match missing {
            Some(_) => Err(StorageError::NotReadBack { what: "the limit is not told".into() }),
            None => Ok(()),
        }
    }

    async fn default_quota(&self, _pool: PoolId) -> Result<DefaultQuota, StorageError> {
        if self.state().defaults_hang {
            return std::future::pending().await;
        }
        let limit = self.asked()?.defaults.ok_or(StorageError::Unsupported("default quotas"))?;
        Ok(DefaultQuota {
            user_size: Known::Known(limit.map(Bytes)),
            user_files: Known::Missing(Why::NotEnabled),
            group_size: Known::Known(Limit::Unlimited),
            group_files: Known::Missing(Why::NotEnabled),
        })
    }

    async fn set_default_quota(
        &self,
        _pool: PoolId,
        _of: QuotaOf,
        size: Option<Limit<Bytes>>,
        _files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        let bell = {
            let mut state = self.asked()?;
            let limit = state.defaults.ok_or(StorageError::Unsupported("default quotas"))?;
            state.defaults = Some(size.map_or(limit, |size| size.map(|bytes| bytes.0)));
            state.answers_at.clone()
        };
        rung(bell).await;
        Ok(())
    }

    async fn quotas(&self, range: QuotaRange) -> Result<Partial<Vec<Quota>>, StorageError> {
        let mut state = self.asked()?;
        let said = state.users.ok_or(StorageError::Unsupported("quotas"))?;
        state.questions.push((range.first, range.last));
        let ids = (range.first..=range.last).map(|number| range.of.id(number));
        let mut value: Vec<Quota> = ids.flat_map(|id| in_pools(&state.quota_pools, id, said)).collect();
        state.lose_limits(&mut value);
        Ok(Partial { value, doubts: state.quota_doubts.clone() })
    }
}

/// The groups of each person.
type People = BTreeMap<Username, Vec<GroupName>>;

/// A user database in memory: nobody is in a group until a test says so, and none answers where there is none.
#[derive(Clone)]
pub struct FakeGroups {
    people: Arc<Mutex<Option<People>>>,
    lost: Arc<Mutex<BTreeSet<Username>>>,
    /// About whom a question is never answered.
    hung: Arc<Mutex<BTreeSet<Username>>>,
    /// How many such questions there are.
    waiting: Arc<tokio::sync::watch::Sender<usize>>,
    homes: PathBuf,
}

impl FakeGroups {
    /// Homes lie in `homes`, by name.
    pub fn new(homes: PathBuf) -> Self {
        Self {
            people: Arc::new(Mutex::new(Some(BTreeMap::new()))),
            lost: Arc::default(),
            hung: Arc::default(),
            waiting: Arc::default(),
            homes,
        }
    }

    /// From now on it does not know a person.
    pub fn lose(&self, person: &str) {
        self.lost.lock().unwrap().insert(person.parse().unwrap());
    }

    /// From now on it knows a person again.
    pub fn find(&self, person: &str) {
        self.lost.lock().unwrap().remove(&person.parse().unwrap());
    }

    /// From now on it never answers what groups a person is in. What is returned says how many wait for that.
    pub fn hang(&self, person: &str) -> tokio::sync::watch::Receiver<usize> {
        self.hung.lock().unwrap().insert(person.parse().unwrap());
        self.waiting.subscribe()
    }

    /// Puts a person into a group.
    pub fn add(&self, person: &str, group: &str) {
        let mut people = self.people.lock().unwrap();
        let groups = people.as_mut().unwrap().entry(person.parse().unwrap()).or_default();
        groups.push(group.parse().unwrap());
    }

    /// From now on it does not answer.
    pub fn go_away(&self) {
        *self.people.lock().unwrap() = None;
    }

    /// From now on it answers again, and nobody is in a group.
    pub fn come_back(&self) {
        *self.people.lock().unwrap() = Some(BTreeMap::new());
    }
}

#[async_trait]
impl GroupSource for FakeGroups {
    async fn groups_of(&self, person: &Username) -> Result<Vec<GroupName>, GroupsAway> {
        let is_hung = self.hung.lock().unwrap().contains(person);
        if is_hung {
            self.waiting.send_modify(|waiting| *waiting += 1);
            std::future::pending::<()>().await;
        }
        let people = self.people.lock().unwrap();
        Ok(people.as_ref().ok_or(GroupsAway)?.get(person).cloned().unwrap_or_default())
    }

    async fn knows(&self, person: &Username) -> Result<bool, GroupsAway> {
        self.people.lock().unwrap().as_ref().ok_or(GroupsAway)?;
        Ok(!self.lost.lock().unwrap().contains(person))
    }

    async fn uid_of(&self, person: &Username) -> Result<Option<u32>, GroupsAway> {
        Ok(self.knows(person).await?.then_some(4711))
    }

    async fn number_of(&self, _group: &GroupName) -> Result<Option<u32>, GroupsAway> {
        Ok(Some(5000))
    }

    async fn home_of(&self, person: &Username) -> Result<PathBuf, GroupsAway> {
        Ok(self.homes.join(person.as_str()))
    }
}
