//! Events for open pages: what has changed, in an order that can be taken up again after a broken connection.
//!
//! State events are kept in the database, so that whoever comes back with the number of the last event gets the rest; log
//! events are only passed on, because the log itself can be read. A reader that is too slow is brought back from the database.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError};

use eirene_core::file_work::Operation;
use eirene_core::{Clock, JobKind, Scope, Session, SessionId, UserId};
use eirene_database::Db;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Mutex, broadcast};

use crate::actor::Actor;
use crate::alerts::Listed;
use crate::audit::{Audit, Look};
use crate::authorize;
use crate::error::AppError;
use crate::shared::Shared;
use crate::spaces::SpaceSeen;

/// Events a slow reader may lag behind before it is brought back from the database.
const IN_FLIGHT: usize = 1024;
/// Events read from the database at once.
const BATCH: u32 = 200;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A session or a run changed.
    State,
    /// A measurement of a running session.
    Sample,
    /// New lines of a session's log.
    Log,
    /// What runs on a session's nodes changed.
    Nodes,
    /// More has been copied to a session's scratch, or from it.
    Scratch,
    /// Work on files goes on, or is over.
    Operation,
    /// What is known of a space changed.
    Space,
    /// An alert was raised, acknowledged or ended. Where it is about a session and has no owner here, the session's owner has silenced it, and
    /// only others are notified.
    Alert,
    /// A message for people.
    Notice,
}

impl EventKind {
    /// The event's name in the stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Sample => "sample",
            Self::Log => "log",
            Self::Nodes => "nodes",
            Self::Scratch => "scratch",
            Self::Operation => "operation",
            Self::Space => "space",
            Self::Alert => "alert",
            Self::Notice => "notice",
        }
    }

    /// Whether it is told only to whoever has the right to files.
    fn is_of_files(self) -> bool {
        match self {
            Self::Operation | Self::Space => true,
            Self::State | Self::Sample | Self::Log | Self::Nodes | Self::Scratch | Self::Alert | Self::Notice => false,
        }
    }

    /// Whether what is nobody's is for admins alone, not for everybody.
    fn is_for_admins(self) -> bool {
        self == Self::Alert
    }

    fn from_stored(word: &str) -> Self {
        match word {
            "state" => Self::State,
            "sample" => Self::Sample,
            "log" => Self::Log,
            "operation" => Self::Operation,
            "space" => Self::Space,
            "alert" => Self::Alert,
            // Whatever a later version may have written is shown as a message.
            _ => Self::Notice,
        }
    }
}

/// What an event says. It becomes what the API shows where it is delivered, so that the table holds nothing of how something is shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The session or run as it is now.
    Session(Box<Session>),
    /// The operation as it is now.
    Operation(Box<Operation>),
    /// What is known of the space now.
    Space(Box<SpaceSeen>),
    /// The alert as it is now.
    Alert(Box<Listed>),
    /// One of these read back from the table, which keeps only its id. Delivery reads its present state.
    Kept(String),
    /// A measurement, lines of a log, a message.
    Small(Value),
}

impl Fact {
    /// What the table keeps.
    fn stored(&self) -> Value {
        match self {
            Self::Session(session) => json!({"id": session.id, "version": session.version}),
            Self::Operation(operation) => json!({"id": operation.id}),
            Self::Space(seen) => json!({"id": seen.space.id}),
            Self::Alert(listed) => json!({"id": listed.known.alert.id}),
            Self::Kept(id) => json!({"id": id}),
            Self::Small(value) => value.clone(),
        }
    }

    /// What the table kept. Earlier versions wrote all that the API showed, with the id in it.
    fn read_back(kind: EventKind, stored: Value) -> Option<Self> {
        match kind {
            EventKind::State | EventKind::Scratch | EventKind::Operation | EventKind::Space | EventKind::Alert => {
                stored["id"].as_str().map(|id| Self::Kept(id.to_owned()))
            }
            EventKind::Sample | EventKind::Log | EventKind::Nodes | EventKind::Notice => Some(Self::Small(stored)),
        }
    }
}

impl From<Value> for Fact {
    fn from(value: Value) -> Self {
        Self::Small(value)
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number to take the stream up at; none for what is not kept.
    pub id: Option<i64>,
    /// Session it is about.
    pub session: Option<SessionId>,
    /// Who may see it; none is everybody.
    pub owner: Option<UserId>,
    /// What it is about.
    pub kind: EventKind,
    /// What it says.
    pub fact: Fact,
    /// When.
    pub at: Timestamp,
}

/// Which events a reader gets.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// A person's own; about their files only with a right to them.
    Of {
        user: UserId,
        files: bool,
    },
    /// Of one session or run; `own` where it is the reader's.
    Session {
        session: SessionId,
        own: bool,
    },
    All,
}

impl Wanted {
    fn includes(self, event: &Event) -> bool {
        match self {
            // What people's apps print is read one session at a time, and written down; what they do with their files is theirs. How far each
            // copy is, and what each session uses, is for who looks at it.
            Self::All => {
                let of_one = matches!(event.kind, EventKind::Log | EventKind::Scratch | EventKind::Sample);
                !of_one && !event.kind.is_of_files()
            }
            Self::Session { session, own } => {
                let is_hidden = own && event.owner.is_none() && event.kind.is_for_admins();
                event.session == Some(session) && !is_hidden
            }
            Self::Of { user, files } => {
                let is_theirs = event.owner.map_or(!event.kind.is_for_admins(), |owner| owner == user);
                is_theirs && (files || !event.kind.is_of_files())
            }
        }
    }
}

/// The events.
#[derive(Clone)]
pub struct Events {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    audit: Audit,
    clock: Arc<dyn Clock>,
    sender: broadcast::Sender<Arc<Event>>,
    /// Events are numbered and passed on in the same order.
    order: Mutex<()>,
    /// What is listened for, with how many readers.
    listening: std::sync::Mutex<HashMap<Followed, usize>>,
}

/// What a reader listens for, as far as somebody has to know before telling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Followed {
    /// A person's own, about their files too or not.
    Own { user: UserId, files: bool },
    /// One session or run.
    One(SessionId),
}

impl Inner {
    fn listening(&self) -> MutexGuard<'_, HashMap<Followed, usize>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader's line among those who listen, as long as it reads.
struct Listening {
    inner: Shared<Inner>,
    followed: Followed,
}

impl Listening {
    fn new(inner: &Shared<Inner>, followed: Followed) -> Self {
        *inner.listening().entry(followed).or_default() += 1;
        Self { inner: inner.clone(), followed }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listening = self.inner.listening();
        if let Some(readers) = listening.get_mut(&self.followed) {
            *readers -= 1;
            if *readers == 0 {
                listening.remove(&self.followed);
            }
        }
    }
}

struct Reader {
    events: Events,
    receiver: broadcast::Receiver<Arc<Event>>,
    wanted: Wanted,
    last_id: i64,
    behind: bool,
    backlog: VecDeque<Event>,
    _listening: Option<Listening>,
}

impl Events {
    /// Events kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, audit: Audit) -> Self {
        let (sender, _) = broadcast::channel(IN_FLIGHT);
        let (order, listening) = (Mutex::new(()), std::sync::Mutex::default());
        Self { inner: Shared::new(Inner { db, audit, clock, sender, order, listening }) }
    }

    /// Keeps an event and passes it on; gives whether it is kept. A failing database costs the number, not the event.
    pub async fn publish(
        &self,
        kind: EventKind,
        session: Option<SessionId>,
        owner: Option<UserId>,
        fact: impl Into<Fact>,
    ) -> bool {
        let fact = fact.into();
        let at = self.inner.clock.now();
        let _order = self.inner.order.lock().await;
        let id = match self.inner.db.append_event(session, owner, kind.as_str(), &fact.stored(), at).await {
            Ok(id) => Some(id),
            Err(error) => {
                tracing::warn!(%error, "An event could not be kept");
                None
            }
        };
        let kept = id.is_some();
        self.pass_on(Event { id, session, owner, kind, fact, at });
        kept
    }

    /// Passes an event on without keeping it.
    pub fn publish_transient(&self, kind: EventKind, session: Option<SessionId>, owner: UserId, fact: impl Into<Fact>) {
        let fact = fact.into();
        let at = self.inner.clock.now();
        self.pass_on(Event { id: None, session, owner: Some(owner), kind, fact, at });
    }

    /// Who listens now for what is of files. For those who tell something to some people only: who may hear it has to be asked one by one, and
    /// whoever does not listen need not be asked about.
    pub(crate) fn listening(&self) -> Vec<UserId> {
        let of_files = |followed: &Followed| match followed {
            Followed::Own { user, files: true } => Some(*user),
            Followed::Own { files: false, .. } | Followed::One(_) => None,
        };
        self.inner.listening().keys().filter_map(of_files).collect()
    }

    /// Whether anybody listens now for what this session of this person does: what comes every few seconds from each is told only then.
    pub(crate) fn is_followed(&self, session: SessionId, owner: UserId) -> bool {
        let own = |files| Followed::Own { user: owner, files };
        let listening = self.inner.listening();
        [Followed::One(session), own(true), own(false)].iter().any(|followed| listening.contains_key(followed))
    }

    fn pass_on(&self, event: Event) {
        // Nobody listening is no error.
        let _ = self.inner.sender.send(Arc::new(event));
    }

    /// Events of one session or run, or of all of one's own; those after `last_id` first, when it is given.
    pub async fn subscribe(
        &self,
        actor: &Actor,
        of: Option<(JobKind, SessionId)>,
        last_id: Option<i64>,
    ) -> Result<BoxStream<'static, Event>, AppError> {
        actor.require(Scope::SessionsRead)?;
        let wanted = match of {
            None => Wanted::Of { user: actor.user.id, files: actor.require(Scope::FilesRead).is_ok() },
            Some((kind, id)) => {
                let session = authorize::visible(&self.inner.db, actor, kind, id).await?;
                self.inner.audit.looked(actor, &session, Look::Log).await;
                Wanted::Session { session: session.id, own: session.owner == actor.user.id }
            }
        };
        self.reader(wanted, last_id).await
    }

    /// The last event there is: who reads something after asking this, and then follows what comes behind it, misses nothing.
    pub async fn latest(&self) -> Result<i64, AppError> {
        Ok(self.inner.db.latest_event_id().await?)
    }

    /// Everybody's events, for admins.
    pub async fn subscribe_all(
        &self,
        actor: &Actor,
        last_id: Option<i64>,
    ) -> Result<BoxStream<'static, Event>, AppError> {
        actor.require_admin()?;
        self.reader(Wanted::All, last_id).await
    }

    async fn reader(&self, wanted: Wanted, last_id: Option<i64>) -> Result<BoxStream<'static, Event>, AppError> {
        let receiver = self.inner.sender.subscribe();
        let followed = match wanted {
            Wanted::Of { user, files } => Some(Followed::Own { user, files }),
            Wanted::Session { session, .. } => Some(Followed::One(session)),
            Wanted::All => None,
        };
        let listening = followed.map(|followed| Listening::new(&self.inner, followed));
        let latest = self.inner.db.latest_event_id().await?;
        // A number from a future that a restored database does not know means: from now on.
        let from = last_id.filter(|id| *id < latest);
        let reader = Reader {
            events: self.clone(),
            receiver,
            wanted,
            last_id: from.unwrap_or(latest),
            behind: from.is_some(),
            backlog: VecDeque::new(),
            _listening: listening,
        };
        Ok(stream::unfold(reader, |mut reader| async move { reader.next().await.map(|event| (event, reader)) }).boxed())
    }
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.backlog.pop_front() {
                return Some(event);
            }
            if self.behind {
                self.catch_up().await?;
                continue;
            }
            match self.receiver.recv().await {
                Ok(event) if event.id.is_some_and(|id| id <= self.last_id) => {}
                Ok(event) => {
                    self.last_id = event.id.unwrap_or(self.last_id);
                    if self.wanted.includes(&event) {
                        return Some((*event).clone());
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.behind = true,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Reads one batch; `None` ends the stream, and the browser comes back by itself.
    async fn catch_up(&mut self) -> Option<()> {
        let batch = match self.events.inner.db.events_after(self.last_id, BATCH).await {
            Ok(batch) => batch,
            Err(error) => {
                tracing::warn!(%error, "Events could not be read");
                return None;
            }
        };
        self.behind = batch.len() == BATCH as usize;
        let mut missed = Vec::new();
        for stored in batch {
            self.last_id = stored.id;
            let kind = EventKind::from_stored(&stored.kind);
            let Some(fact) = Fact::read_back(kind, stored.data) else { continue };
            let (session, owner, at) = (stored.session, stored.owner, stored.at);
            let event = Event { id: Some(stored.id), session, owner, kind, fact, at };
            if self.wanted.includes(&event) {
                missed.push(event);
            }
        }
        // What is named by its id is shown as it is now, so once is enough: the last time.
        let mut named = HashSet::new();
        for event in missed.into_iter().rev() {
            let again = matches!(&event.fact, Fact::Kept(id) if !named.insert((event.kind, id.clone())));
            if !again {
                self.backlog.push_front(event);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::Role;

    use super::*;
    use crate::testing::{PATIENCE, TestApp};

    impl Fact {
        pub(crate) fn small(&self) -> &Value {
            let Self::Small(value) = self else { panic!("{self:?}") };
            value
        }

        pub(crate) fn alert(&self) -> &Listed {
            let Self::Alert(listed) = self else { panic!("{self:?}") };
            listed
        }
    }

    async fn publish(events: &Events, owner: Option<UserId>, number: i64) {
        events.publish(EventKind::Notice, None, owner, json!(number)).await;
    }

    async fn numbers(stream: &mut BoxStream<'static, Event>, count: usize) -> Vec<i64> {
        let taken = stream.take(count).collect::<Vec<Event>>();
        let taken = tokio::time::timeout(PATIENCE, taken).await.expect("events come");
        let number = |fact: &Fact| match fact {
            Fact::Kept(id) => id.parse().ok(),
            other => other.small().as_i64().or_else(|| other.small()["id"].as_str()?.parse().ok()),
        };
        taken.into_iter().map(|event| number(&event.fact).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_reader_goes_on_where_it_was_and_sees_its_own_only() {
        let test = TestApp::new().await;
        let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
        let events = &test.app.events;
        publish(events, Some(ada.user.id), 1).await;
        let last = test.app.db.latest_event_id().await.unwrap();
        publish(events, Some(ada.user.id), 2).await;
        publish(events, Some(grace.user.id), 3).await;
        let mut of_ada = events.subscribe(&ada, None, Some(last)).await.unwrap();
        let mut of_grace = events.subscribe(&grace, None, None).await.unwrap();
        publish(events, Some(ada.user.id), 4).await;
        publish(events, None, 5).await;
        assert_eq!(numbers(&mut of_ada, 3).await, [2, 4, 5]);
        assert_eq!(numbers(&mut of_grace, 1).await, [5]);
        assert!(matches!(events.subscribe_all(&ada, None).await, Err(AppError::Forbidden { .. })));
    }

    #[tokio::test]
    async fn what_somebody_does_with_files_is_told_to_them_alone_and_with_the_right_to_files() {
        let test = TestApp::new().await;
        let (ada, admin) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
        let scopes = Scope::DEFAULT.to_vec();
        let via = crate::actor::Via::Token { id: eirene_core::TokenId::generate(), scopes };
        let program = Actor { via, ..ada.clone() };
        let events = &test.app.events;
        let last = test.app.db.latest_event_id().await.unwrap();
        let mut hers = events.subscribe(&ada, None, None).await.unwrap();
        let mut programs = events.subscribe(&program, None, None).await.unwrap();
        let mut everybodys = events.subscribe_all(&admin, None).await.unwrap();
        events.publish(EventKind::Operation, None, Some(ada.user.id), json!({"id": "1"})).await;
        events.publish_transient(EventKind::Operation, None, ada.user.id, json!(2));
        publish(events, Some(ada.user.id), 3).await;
        assert_eq!(numbers(&mut hers, 3).await, [1, 2, 3]);
        assert_eq!(numbers(&mut programs, 1).await, [3]);
        assert_eq!(numbers(&mut everybodys, 1).await, [3]);
        // What is kept is read back by the same rule.
        let mut later = events.subscribe(&program, None, Some(last)).await.unwrap();
        assert_eq!(numbers(&mut later, 1).await, [3]);
        let mut later = events.subscribe(&ada, None, Some(last)).await.unwrap();
        assert_eq!(numbers(&mut later, 2).await, [1, 3]);
    }

    #[tokio::test]
    async fn what_somebody_has_silenced_is_told_to_admins_alone_also_of_one_session() {
        let test = TestApp::new().await;
        let (ada, admin) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
        let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
        let events = &test.app.events;
        let last = test.app.db.latest_event_id().await.unwrap();
        let of_one = Some((JobKind::Session, session.id));
        let mut hers = events.subscribe(&ada, None, None).await.unwrap();
        let mut hers_of_one = events.subscribe(&ada, of_one, None).await.unwrap();
        let mut admins_of_one = events.subscribe(&admin, of_one, None).await.unwrap();
        let mut everybodys = events.subscribe_all(&admin, None).await.unwrap();
        events.publish(EventKind::Alert, Some(session.id), None, json!({"id": "1"})).await;
        events.publish(EventKind::Alert, Some(session.id), Some(ada.user.id), json!({"id": "2"})).await;
        for stream in [&mut hers, &mut hers_of_one] {
            assert_eq!(numbers(stream, 1).await, [2]);
        }
        for stream in [&mut admins_of_one, &mut everybodys] {
            assert_eq!(numbers(stream, 2).await, [1, 2]);
        }
        // What is kept is read back by the same rule.
        let mut later = events.subscribe(&ada, of_one, Some(last)).await.unwrap();
        assert_eq!(numbers(&mut later, 1).await, [2]);
    }

    #[tokio::test]
    async fn who_follows_what_is_known_as_long_as_they_do() {
        let test = TestApp::new().await;
        let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
        let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
        let events = &test.app.events;
        let followed = || events.is_followed(session.id, ada.user.id);
        assert!(!followed());
        let of_grace = events.subscribe(&grace, None, None).await.unwrap();
        assert!(!followed(), "hers are others");
        let of_ada = events.subscribe(&ada, None, None).await.unwrap();
        assert!(followed());
        drop(of_ada);
        let one = events.subscribe(&ada, Some((JobKind::Session, session.id)), None).await.unwrap();
        assert!(followed());
        drop((one, of_grace));
        assert!(!followed());
    }

    #[tokio::test]
    async fn a_slow_reader_misses_nothing_that_is_kept() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let events = &test.app.events;
        let mut stream = events.subscribe(&ada, None, None).await.unwrap();
        let many = i64::try_from(IN_FLIGHT).unwrap() + 50;
        for number in 0..many {
            publish(events, Some(ada.user.id), number).await;
        }
        let all = numbers(&mut stream, usize::try_from(many).unwrap()).await;
        assert_eq!(all, (0..many).collect::<Vec<_>>());
        publish(events, None, many).await;
        assert_eq!(numbers(&mut stream, 1).await, [many]);
    }

    #[tokio::test]
    async fn a_number_from_the_future_means_from_now_on() {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        publish(&test.app.events, None, 1).await;
        let mut stream = test.app.events.subscribe(&ada, None, Some(1_000_000)).await.unwrap();
        publish(&test.app.events, None, 2).await;
        assert_eq!(numbers(&mut stream, 1).await, [2]);
    }
}
