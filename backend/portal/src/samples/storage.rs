//! Spaces, what takes their room, and the admins' storage.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use eirene_core::account::Role;
use eirene_core::old_files::{
    OldFileExample, OldFilesDoubt, OldFilesFound, OldFilesList, OldFilesLook, OldFilesOfStranger, OldFilesRemoval,
    OldFilesRule, OldFilesState,
};
use eirene_core::space::{
    HintState, Level, LimitState, SeenUsage, SpaceDesired, StripeHint, Usage, UsageSample, UsageSource,
};
use eirene_core::storage::{
    Bytes, Consistency, DefaultQuota, Doubt, DoubtAbout, Entry, EntryKind, Files, Known, Limit, NodeId,
    OperationCounts, OperationsOf, Partial, Pattern, Pool, PoolId, Reach, Role as TargetRole, Room, ServerNode,
    ServerSample, Stripe, Target, TargetId, Why,
};
use eirene_core::{Reason, Space, SpaceId, SpaceKind, SpaceOwner, SpaceState, UserId};
use eirene_files_protocol::RelativePath;
use eirene_services::old_files::{OldFilesMember, OldFilesReport, PromisedRemoval};
use eirene_services::scans::{Directory, ScanState, Sizes};
use eirene_services::spaces::census::Census;
use eirene_services::spaces::group_limits::GroupLimit;
use eirene_services::spaces::trend::Trend;
use eirene_services::spaces::{NOT_SHARED, SpaceSeen};
use eirene_services::storage::Report;
use eirene_services::storage::history::{Load, Point, UsersPoint};
use eirene_services::storage::judge::judge;
use eirene_services::storage::snapshot::{Asked, RootSeen, Snapshot, Trouble, TroubleKind};
use eirene_services::storage::stats::{Operations, Rates, Row, Servers};
use eirene_words::{say, say_with, words};
use jiff::SignedDuration;

use super::{HOSTILE, Result, Samples};
use crate::views::activity::{ActivityFragment, ActivityPage, ActivityView, Seen};
use crate::views::group_limits::GroupLimitsView;
use crate::views::layout::Place;
use crate::views::old_files::{OldFilesShown, PromisedView};
use crate::views::sizes::{SizesFragment, SizesPage, SizesView};
use crate::views::space::{HistoryView, SpaceFragment, SpacePage, SpaceView, SpacesFragment, SpacesPage, details};
use crate::views::storage::StoragePage;
use crate::views::stripe;

const GIB: u64 = 1 << 30;

impl Samples {
    /// Spaces.
    pub(super) fn spaces(&mut self) -> Result<()> {
        let all = self.seen()?;
        let me = UserId::generate();
        let views: Vec<SpaceView> = all.iter().map(|seen| SpaceView::new(words(), seen, me, true)).collect();
        let group_limits = GroupLimitsView::new(words(), &group_limits()?);
        for (name, spaces, group_limits, promised) in [
            ("spaces", views.clone(), group_limits.clone(), self.promised()?),
            ("spaces-none", Vec::new(), GroupLimitsView::unknown(words()), Vec::new()),
        ] {
            let layout = self.layout(Place::Spaces, &words().get("my_spaces.title"), Role::Researcher)?;
            self.add(name, &SpacesPage { layout: layout.live("/live/events", 60), spaces, group_limits, promised })?;
        }
        let stripe = Stripe {
            pattern: Pattern::BuddyMirror,
            chunk: Known::Known(Bytes(512 << 10)),
            targets_wanted: Known::Known(4),
            targets: vec![],
            pool: Known::Known((PoolId(1), "<b>Default</b>".to_owned())),
        };
        let known = Entry {
            kind: EntryKind::Directory,
            entry_id: "0-6AC3F2B1-1".to_owned(),
            metadata_node: Known::Known(NodeId {
                role: TargetRole::Metadata,
                number: 1,
                alias: Some("<b>mds1</b>".to_owned()),
            }),
            metadata_mirrored: Known::Known(false),
            stripe: Known::Known(stripe),
        };
        let spread = |at: usize| if at == 3 { stripe::facts(words(), &known) } else { vec![] };
        let history = HistoryView::new(words(), &self.samples());
        for (at, name) in
            [(0, "space"), (2, "space-silent"), (3, "space-group"), (6, "space-not-made"), (7, "space-retired")]
        {
            let page = SpacePage {
                layout: self.layout(Place::Spaces, &views[at].title, Role::Researcher)?.live("/live/events", 60),
                space: views[at].clone(),
                history: history.clone().filter(|_| at != 2),
                details: [details(words(), &all[at], UserId::generate()), spread(at)].concat(),
                old_files: OldFilesShown::new(
                    words(),
                    "scratch-ada",
                    &OldFilesReport { is_shared: at == 3, ..self.old_files(at % 3 == 0) },
                )
                .filter(|_| at < 4),
            };
            self.add(name, &page)?;
        }
        self.add("fragment-spaces", &SpacesFragment { spaces: views.clone(), group_limits })?;
        self.add("fragment-space", &SpaceFragment { space: views[0].clone(), history })?;
        Ok(())
    }

    /// Old files that wait to be removed, and such of which nothing is known.
    pub(super) fn old_files(&self, waits: bool) -> OldFilesReport {
        let rule = OldFilesRule { days: 30, warn_days: 14, dry_run: !waits };
        let example = OldFileExample {
            path: HOSTILE.to_owned(),
            raw_path: None,
            bytes: 3 * GIB,
            modified_at: Some(self.now),
            changed_at: None,
        };
        let found = OldFilesFound {
            files: 12_345,
            bytes: 7 * GIB,
            saved: 1,
            skipped: 2,
            more: true,
            examples: vec![example],
            others: vec![],
        };
        let list = OldFilesList {
            at: self.now,
            before: self.now,
            days: 30,
            warn_days: 14,
            dry_run: false,
            told_at: Some(self.now),
            waited_s: 0,
            found: found.clone(),
        };
        let mut state = OldFilesState::new(SpaceId::generate());
        if waits {
            state.list = Some(list);
            state.look = Some(OldFilesLook { at: self.now, days: 30, found });
            let removal = OldFilesRemoval { files: 1, bytes: GIB, kept: 2, gone: 3, failed: 4 };
            state.removed = Some((self.now, removal));
        } else {
            state.doubt = Some(OldFilesDoubt::OtherFileSystem);
        }
        let goes_at = Some(self.now).filter(|_| waits);
        OldFilesReport {
            rule: Some(rule),
            state,
            is_shared: false,
            is_own: true,
            members: vec![],
            goes_at,
            running: !waits,
            operation: None,
            may_look: true,
        }
    }

    /// Old files that are to be removed, of two spaces.
    pub(super) fn promised(&self) -> Result<Vec<PromisedView>> {
        let one = |space: &str, title: &str, files| -> Result<PromisedRemoval> {
            Ok(PromisedRemoval { space: space.parse()?, title: title.parse()?, files, goes_at: self.now })
        };
        Ok(PromisedView::all(words(), &[one("scratch-ada", "Scratch", 1234)?, one("stars", "<b>Stars</b>", 1)?]))
    }

    /// The same as an admin sees it in a space of a group: of one member it waits, of another nothing is known, a third
    /// was only looked at, and somebody has left.
    pub(super) fn shared_old_files(report: &OldFilesReport) -> Result<OldFilesReport> {
        let seen_at = report.state.look.as_ref().map(|look| look.at);
        let silent =
            OldFilesState { doubt: Some(OldFilesDoubt::OwnerDisabled), ..OldFilesState::new(SpaceId::generate()) };
        let member = |name: &str, state| -> Result<OldFilesMember> {
            Ok(OldFilesMember { name: name.parse()?, state, goes_at: report.goes_at, running: false })
        };
        let looked = OldFilesState { look: report.state.look.clone(), ..OldFilesState::new(SpaceId::generate()) };
        let members = vec![member("ada", report.state.clone())?, member("grace", silent)?, member("marie", looked)?];
        let stranger = |uid, name| OldFilesOfStranger { uid, name, files: 12, bytes: GIB, seen_at };
        let mut state = OldFilesState::new(SpaceId::generate());
        state.strangers = vec![stranger(2009, Some("linus".parse()?)), stranger(65_534, None)];
        Ok(OldFilesReport { state, is_shared: true, is_own: false, members, goes_at: None, ..*report })
    }

    /// What takes the room, at every state of measuring.
    pub(super) fn sizes(&mut self) -> Result<()> {
        let space = self.space("home-ada", "Home", SpaceKind::Home, Self::ada()?)?;
        let directory = |path: &[u8], bytes: u64| -> Result<Directory> {
            let path = if path.is_empty() { RelativePath::default() } else { RelativePath::parse(path)? };
            let (files, at) = (bytes / 1000, self.now);
            Ok(Directory { path, device: 1, inode: 1, bytes, files, own_bytes: 0, own_files: 0, at })
        };
        let long = "a-directory-with-a-very-long-name-and-no-blank-in-it-".repeat(4);
        let items = vec![
            directory(b"work/<b>results</b>", 30 * GIB)?,
            directory("work/\u{202e}backwards\n".as_bytes(), 9 * GIB)?,
            directory(b"work/\xff\xfe", GIB)?,
            directory(format!("work/{long}").as_bytes(), 1 << 20)?,
        ];
        let cases = [
            ("sizes", ScanState::Done, Some(directory(b"work", 42 * GIB)?), items.clone()),
            ("sizes-running", ScanState::Running, None, items),
            ("sizes-stopped", ScanState::Stopped, Some(directory(b"", 0)?), Vec::new()),
            ("sizes-never", ScanState::Never, None, Vec::new()),
        ];
        for (name, state, here, items) in cases {
            let sizes = Sizes {
                state,
                operation: None,
                as_of: (state == ScanState::Done).then_some(self.now),
                directories_done: 7,
                files_done: 1_234_567,
                bytes_done: 42 * GIB,
                approximate: state == ScanState::Done,
                skipped: u64::from(state == ScanState::Done),
                path: here.as_ref().map(|here| here.path.clone()).unwrap_or_default(),
                round: RelativePath::default(),
                here,
                items,
            };
            let view = SizesView::new(words(), &space, &sizes);
            let title = words().get("my_spaces.sizes_page.title");
            let page = SizesPage {
                layout: self.layout(Place::Spaces, &title, Role::Researcher)?.live("/live/events", 15),
                lede: words().fill("my_spaces.sizes_page.lede", &[("title", space.title.as_str())]),
                space_href: "/spaces/home-ada".to_owned(),
                fragment_href: "/fragments/spaces/home-ada/sizes".to_owned(),
                sizes: view.clone(),
            };
            self.add(name, &page)?;
            if state == ScanState::Done {
                let layout = self.layout(Place::Spaces, "", Role::Researcher)?;
                self.add("fragment-sizes", &SizesFragment { layout, sizes: view })?;
            }
        }
        Ok(())
    }

    /// The admins' page: a BeeGFS with much that is wrong, and a file system of which little is known.
    pub(super) fn storage(&mut self) -> Result<()> {
        let target = |number: u32, reach, consistency, room, free: Known<Bytes>| Target {
            id: TargetId { role: TargetRole::Storage, number },
            node: Known::Missing(Why::DidNotAnswer),
            alias: Some("<i>alias</i>".to_owned()),
            pool: Some(PoolId(1)),
            reach,
            consistency,
            room,
            total: Known::Known(Bytes(100 * GIB)),
            free,
            inodes_total: Known::Known(Files(16_800_000)),
            inodes_free: if number == 101 {
                Known::Known(Files(16_100_000))
            } else {
                Known::Missing(Why::DidNotAnswer)
            },
            precision: Bytes(1),
            inodes_precision: Files(1),
            last_contact_s: Known::Missing(Why::NotSupported),
        };
        let pool = |number: u16, name: &str, targets: &[u32]| Pool {
            id: PoolId(number),
            name: name.to_owned(),
            targets: targets.to_vec(),
            mirrors: vec![],
        };
        // Of the first one target does not tell all, of the second one none tells anything, and of the third all do.
        let pools = vec![pool(1, "<b>Default</b>", &[101, 201]), pool(2, "fast", &[301]), pool(3, "old", &[101])];
        let missing = Known::Missing(Why::DidNotAnswer);
        let server = |role, alias: Option<&str>, addresses: &[&str], reachable| ServerNode {
            id: NodeId { role, number: 1, alias: alias.map(ToOwned::to_owned) },
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            reachable,
        };
        let servers = vec![
            server(TargetRole::Management, None, &[], Known::Missing(Why::NotSupported)),
            server(TargetRole::Metadata, Some("<b>mds1</b>"), &["ib0(RDMA)", "eno1(TCP)"], Known::Known(true)),
            server(TargetRole::Storage, Some("oss1"), &["<i>192.0.2.7</i>:8003"], Known::Known(false)),
        ];
        let snapshot = Snapshot {
            at: Some(self.now),
            capabilities: None,
            nodes: Asked::Got(Partial { value: servers, doubts: vec![] }),
            targets: Asked::Got(Partial {
                value: vec![
                    target(101, Reach::Online, Consistency::Good, Room::Low, Known::Known(Bytes(4 * GIB))),
                    target(201, Reach::Offline, Consistency::NeedsResync, Room::Unknown, missing),
                ],
                doubts: vec![Doubt { about: DoubtAbout::Whole, text: "[ERROR from <b>oss2</b>]".to_owned() }],
            }),
            pools: Asked::Got(Partial { value: pools, doubts: vec![] }),
            roots: vec![RootSeen {
                name: "scratch".parse()?,
                writable: true,
                file_system: Asked::Failed(Trouble { kind: TroubleKind::Away, text: "no answer".to_owned() }),
                first: None,
                made: None,
            }],
            homes: Asked::Failed(Trouble { kind: TroubleKind::Missing, text: "ada: <b>/home/ada</b>".to_owned() }),
        };
        let defaults = DefaultQuota {
            user_size: Known::Known(Limit::At(Bytes(50 * GIB))),
            user_files: Known::Known(Limit::Unlimited),
            group_size: Known::Missing(Why::NotEnabled),
            group_files: Known::Missing(Why::NotEnabled),
        };
        let looked = |seen: &SpaceSeen| seen.seen.map(|look| (seen.space.clone(), look));
        let spaces: Vec<_> = self.seen()?.iter().filter_map(looked).collect();
        let census = Census {
            levels: [(Level::Ok, 40), (Level::Warning, 3), (Level::Full, 1)].into(),
            short: spaces.clone(),
            largest: spaces,
        };
        let empty = (Snapshot::default(), Census::default(), vec![]);
        let cases = [
            ("admin-storage", snapshot, census, vec![Ok(defaults)]),
            ("admin-storage-empty", empty.0, empty.1, empty.2),
        ];
        for (name, snapshot, census, defaults) in cases {
            let findings = judge(&snapshot, [10, 5], self.now);
            let report = Report { adapter: "beegfs7", snapshot: Arc::new(snapshot), findings };
            let layout = self.layout(Place::Storage, &words().get("storage_page.title"), Role::Admin)?;
            self.add(name, &StoragePage::new(words(), layout, &report, &census, &defaults))?;
        }
        Ok(())
    }

    /// What servers do: much by many, and nothing that is told.
    pub(super) fn activity(&mut self) -> Result<()> {
        let server = |number: u32, alias: Option<&str>| ServerSample {
            node: Known::Known(NodeId { role: TargetRole::Storage, number, alias: alias.map(ToOwned::to_owned) }),
            at_s: 1_790_000_000,
            written: Known::Known(Bytes((u64::from(number) * 300) << 20)),
            read: Known::Missing(Why::NotSupported),
            requests: 4321,
            queued: 17,
            busy: 8,
        };
        let asker = |of: OperationsOf, total: u64| Row {
            counts: OperationCounts {
                of,
                total,
                by_name: vec![],
                read: Known::Known(Bytes(total)),
                written: Known::Missing(Why::NotSupported),
            },
            per_s: (total > 1000).then(|| Rates { total: 12.5, by_name: vec![], read: Some(3e9), written: None }),
        };
        let told = |rows: Vec<Row>, left_out| Operations {
            at: self.now,
            over_s: Some(15.0),
            restarted: false,
            rows,
            left_out,
            doubts: vec!["Target storage:<b>2</b> said nothing at the last look.".to_owned()],
            missing: None,
        };
        let people = vec![
            asker(OperationsOf::User(2001), 1_234_567),
            asker(OperationsOf::User(4_294_967_295), 9),
            asker(OperationsOf::UnknownUser, 3),
        ];
        let nodes = vec![asker(OperationsOf::Client("<i>2001:db8::7</i>".to_owned()), 99_999)];
        let second = |minute: i64| Point {
            at: self.now - SignedDuration::from_mins(60 - minute),
            over_s: 60,
            written_per_s: Some(f64::from(u32::try_from(minute).unwrap_or(0)) * 3e7),
            read_per_s: Some(if minute % 7 < 3 { 1.5e9 } else { 4e8 }),
            requests_per_s: 900.0,
            queued_most: 3,
        };
        let missing = || Some((Why::NotSupported, words().get("problem.no_stats")));
        let nobody = Operations { missing: missing(), ..told(vec![], 0) };
        let silent = Servers { answer: Partial { value: vec![], doubts: vec![] }, missing: missing() };
        let busy = Servers {
            answer: Partial { value: vec![server(1, Some("<b>oss1</b>")), server(2, None)], doubts: vec![] },
            missing: None,
        };
        let history: Vec<Point> = (0..=60).map(second).collect();
        let load = |operations, read| Load { operations, read: Some(read), written: Some(2e8) };
        let counted = |minute: i64| UsersPoint {
            at: self.now - SignedDuration::from_mins(60 - minute),
            over_s: 60.0,
            users: [
                (OperationsOf::User(2001), load(900.0, 1e9)),
                (OperationsOf::User(4_294_967_295), load(3.0, 7e8)),
                (OperationsOf::UnknownUser, load(70.0, 3e8)),
                (OperationsOf::User(2002), load(1.0, 2e8)),
            ]
            .into_iter()
            .skip(usize::from(minute % 20 < 4))
            .collect(),
            others: (minute % 9 < 5).then(|| load(12.0, 1e8)),
        };
        let users_history: Vec<UsersPoint> = (1..=60).map(counted).collect();
        let names = BTreeMap::from([(2001, "ada".parse()?)]);
        let cases = [
            ("admin-activity", TargetRole::Storage, busy, (history, users_history), told(people, 40), told(nodes, 0)),
            (
                "admin-activity-none",
                TargetRole::Metadata,
                silent,
                (vec![], vec![]),
                nobody.clone(),
                Operations { doubts: vec![], ..nobody },
            ),
        ];
        for (name, role, servers, (history, users_history), people, nodes) in cases {
            let seen = Seen {
                role,
                servers: &servers,
                history: &history,
                users_history: &users_history,
                people: &people,
                nodes: &nodes,
                names: &names,
                now: self.now,
                every: SignedDuration::from_mins(1),
            };
            let activity = ActivityView::new(words(), &seen);
            let page = ActivityPage {
                layout: self.layout(Place::Storage, &words().get("activity.title"), Role::Admin)?,
                activity: activity.clone(),
                fragment_href: "/fragments/admin/storage/activity".to_owned(),
            };
            self.add(name, &page)?;
            if role == TargetRole::Storage {
                self.add("fragment-activity", &ActivityFragment { activity })?;
            }
        }
        Ok(())
    }

    /// Spaces of every kind and level: one that grows, one that is full, one nobody counts, one of a group that is away, one to be made.
    pub(super) fn seen(&self) -> Result<Vec<SpaceSeen>> {
        let usage = |used: Option<u64>, limit: Option<Limit<u64>>| Usage {
            source: UsageSource::ProjectQuota,
            used_bytes: used.map(Bytes),
            limit_bytes: limit.map(|limit| limit.map(Bytes)),
            used_files: used.map(|_| Files(1_234_567)),
            limit_files: used.map(|_| Limit::At(Files(2_000_000))),
            total_bytes: Some(Bytes(4000 * GIB)),
            total_files: None,
            free_bytes: Some(Bytes(300 * GIB)),
            free_files: None,
            missing: None,
            measured: None,
        };
        let nothing = Trend { bytes_per_day: None, full_at: None, days: 0 };
        let grows = Trend {
            bytes_per_day: Some(700 << 20),
            full_at: Some(self.now + SignedDuration::from_hours(24 * 12)),
            days: 20,
        };
        let silent = Usage { source: UsageSource::FileSystem, missing: Some(Why::NotEnabled), ..usage(None, None) };
        let group = Usage { source: UsageSource::BeegfsGroup, ..usage(Some(5 * GIB), Some(Limit::Unlimited)) };
        let seen = |space: Space, usage: Option<Usage>, level, own_level, trend| SpaceSeen {
            space,
            seen: usage.map(|usage| SeenUsage { usage, level, told: Level::Ok, seen_at: self.now }),
            trend,
            own_level,
            mounted_at: Some(PathBuf::from("/project/physics")),
        };
        let home = self.space("home-ada", "Home", SpaceKind::Home, Self::ada()?)?;
        let full = Space {
            expires_at: Some(self.now + SignedDuration::from_hours(24 * 3)),
            hint: StripeHint::LargeSequential,
            ..self.space("scratch-ada", "Scratch", SpaceKind::Scratch, Self::ada()?)?
        };
        let data = self.space(
            "imagenet",
            "A shared collection of pictures with a rather long title",
            SpaceKind::Shared,
            SpaceOwner::Everybody,
        )?;
        let physics = Space {
            undetermined: true,
            hint: StripeHint::SmallFiles,
            hint_state: HintState::NotApplied,
            hint_said: Some("the storage refuses: <b>no licence</b>".to_owned()),
            ..self.space("physics", "<b>Physics</b>", SpaceKind::Project, SpaceOwner::Group("physics".parse()?))?
        };
        let unshared = Space {
            reason: Some(Reason::new(NOT_SHARED, say("space.not_shared"))),
            ..self.space("stars", "Stars", SpaceKind::Project, SpaceOwner::Group("physics".parse()?))?
        };
        let wanted = Space {
            state: SpaceState::Wanted,
            ..self.space("new-project", "New", SpaceKind::Project, SpaceOwner::Group("new".parse()?))?
        };
        let reason = Reason::new("not_made", say_with("space.not_made", &[("said", "<b>no such</b> group")]));
        let not_made = Space {
            state: SpaceState::Wanted,
            reason: Some(reason),
            ..self.space("not-made", "Not made", SpaceKind::Project, SpaceOwner::Group("nobody".parse()?))?
        };
        let retired = Space {
            state: SpaceState::Retired,
            desired: SpaceDesired::Retired,
            retired_at: Some(self.now),
            remove_after: Some(self.now + SignedDuration::from_hours(24 * 30)),
            ..self.space("old-project", "Old", SpaceKind::Project, SpaceOwner::Group("physics".parse()?))?
        };
        Ok(vec![
            seen(home, Some(usage(Some(42 * GIB), Some(Limit::At(50 * GIB)))), Level::Critical, Level::Warning, grows),
            seen(full, Some(usage(Some(101 * GIB), Some(Limit::At(100 * GIB)))), Level::Full, Level::Full, nothing),
            seen(data, Some(silent), Level::Unknown, Level::Unknown, nothing),
            seen(physics, Some(group), Level::Ok, Level::Ok, Trend { bytes_per_day: Some(0), ..nothing }),
            seen(unshared, Some(group), Level::Ok, Level::Ok, nothing),
            seen(wanted, None, Level::Unknown, Level::Unknown, nothing),
            seen(not_made, None, Level::Unknown, Level::Unknown, nothing),
            seen(retired, None, Level::Unknown, Level::Unknown, nothing),
        ])
    }

    fn ada() -> Result<SpaceOwner> {
        Ok(SpaceOwner::Person { id: UserId::generate(), name: "ada".parse()? })
    }

    fn space(&self, name: &str, title: &str, kind: SpaceKind, owner: SpaceOwner) -> Result<Space> {
        Ok(Space {
            id: SpaceId::generate(),
            serial: 7,
            name: name.parse()?,
            kind,
            title: title.parse()?,
            root: "project".parse()?,
            owner,
            writable: true,
            hint: StripeHint::Usual,
            hint_state: HintState::Unset,
            hint_said: None,
            desired: SpaceDesired::Present,
            state: SpaceState::Present,
            undetermined: false,
            reason: None,
            made_at: None,
            limit_bytes: Limit::Unlimited,
            limit_files: Limit::Unlimited,
            limit_state: LimitState::Unset,
            limit_said: None,
            expires_at: None,
            warned: vec![],
            retired_at: None,
            remove_after: None,
            kept_s: 0,
            watched_at: None,
            created_at: self.now,
            version: 1,
        })
    }

    /// A month of growth with a day of tidying up.
    fn samples(&self) -> Vec<UsageSample> {
        let sample = |day: u64| UsageSample {
            at: self.now - SignedDuration::from_hours(24 * (30 - i64::try_from(day).unwrap_or(0))),
            used_bytes: Bytes(if day < 20 { (30 + day) * GIB } else { (10 + day) * GIB }),
            used_files: Some(Files(1000 * day)),
            limit_bytes: Some(Bytes(50 * GIB)),
        };
        (0..=30).map(sample).collect()
    }
}

/// A group that is nearly full in one part of the storage, and one of which nobody tells what it uses.
fn group_limits() -> Result<Vec<GroupLimit>> {
    let usage = |used: Option<u64>| Usage {
        source: UsageSource::BeegfsGroup,
        used_bytes: used.map(Bytes),
        limit_bytes: Some(Limit::At(Bytes(100 * GIB))),
        used_files: used.map(|_| Files(1234)),
        limit_files: Some(Limit::Unlimited),
        total_bytes: None,
        total_files: None,
        free_bytes: None,
        free_files: None,
        missing: None,
        measured: None,
    };
    let limit = |group: &str, pool, used, level| -> Result<GroupLimit> {
        Ok(GroupLimit { group: group.parse()?, pool, usage: usage(used), level })
    };
    Ok(vec![
        limit("physics", Some(PoolId(2)), Some(96 * GIB), Level::Critical)?,
        limit("a-group-with-a-very-long-name-on-purpose", None, None, Level::Unknown)?,
    ])
}
