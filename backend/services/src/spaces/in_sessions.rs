//! Which spaces a session sees, where, and where they lie on the nodes: what its job binds, what its scratch is filled from and emptied to, and
//! what the start form tells beforehand, all by one rule.

use eirene_core::job_file::Bind;
use eirene_core::scratch::HOME_SPACE;
use eirene_core::{Space, SpaceKind, SpaceName, SpaceOwner, SpaceState, UserId};

use super::Spaces;
use super::access::Reach;
use crate::config::Root;
use crate::error::AppError;

/// A space that sessions see.
#[derive(Debug, Clone, PartialEq)]
pub struct InSession {
    /// The space.
    pub space: Space,
    /// How a session gets it.
    pub bind: Bind,
    /// Whether it is the one that everybody has of its root, and goes by the root's name too.
    own: bool,
}

/// The spaces that a person's sessions see.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InSessions {
    seen: Vec<InSession>,
    home: Option<SpaceName>,
}

/// What a name means to a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Named<'a> {
    /// The home directory, which is where the job's is.
    Home,
    /// This space.
    Space(&'a InSession),
}

impl Named<'_> {
    /// Whether it may be written to.
    pub(crate) fn is_writable(self) -> bool {
        match self {
            Self::Home => true,
            Self::Space(seen) => seen.bind.writable,
        }
    }
}

impl InSessions {
    /// Of what `person` may do with `spaces`, those that lie in one of `roots` and are there.
    pub fn of(spaces: Vec<(Space, Reach)>, person: UserId, roots: &[Root]) -> Self {
        let usable = |(space, reach): &(Space, Reach)| *reach > Reach::Hidden && space.state == SpaceState::Present;
        let is_own = |space: &Space| matches!(space.owner, SpaceOwner::Person { id, .. } if id == person);
        let (homes, spaces): (Vec<_>, Vec<_>) =
            spaces.into_iter().filter(usable).partition(|(space, _)| space.kind == SpaceKind::Home);
        let home = homes.into_iter().find(|(space, _)| is_own(space)).map(|(space, _)| space.name);
        let mut seen: Vec<InSession> = spaces
            .into_iter()
            .filter_map(|(space, reach)| {
                let root = roots.iter().find(|root| root.name == space.root)?;
                let bind = root.bind(&space, reach == Reach::Write)?;
                Some(InSession { own: root.is_personal() && is_own(&space), bind, space })
            })
            .collect();
        seen.sort_by(|a, b| a.bind.target.cmp(&b.bind.target));
        Self { seen, home }
    }

    /// All of them, by where they are seen. The home is not among them: every session has it.
    pub fn all(&self) -> &[InSession] {
        &self.seen
    }

    /// What this name means; none where there is no such space for the person, whatever there is for others.
    pub fn named(&self, name: &SpaceName) -> Option<Named<'_>> {
        if name.as_str() == HOME_SPACE || self.home.as_ref() == Some(name) {
            return Some(Named::Home);
        }
        let own = self.seen.iter().find(|seen| seen.own && seen.space.root.as_str() == name.as_str());
        own.or_else(|| self.seen.iter().find(|seen| seen.space.name == *name)).map(Named::Space)
    }
}

impl Spaces {
    /// The spaces that a session of this person sees which starts now. A user database that does not say which groups the person is in is an
    /// error, because a session goes on for long with what it was started with.
    pub async fn in_sessions(&self, person: UserId) -> Result<InSessions, AppError> {
        Ok(InSessions::of(self.all_seen(person).await?, person, &self.inner.roots))
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::GroupName;
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;
    use crate::spaces::access::{Groups, reach};
    use crate::spaces::testing::{a_space, person};

    fn roots() -> Vec<Root> {
        let text = "[server]\nportal_url = \"http://eirene.localhost:8080\"\napps_domain = \"apps.eirene.localhost:8080\"\nstate_dir = \"/s\"\n\
                    [launcher]\nsocket = \"/s/l\"\n[tunnel]\nadvertise = \"portal:7443\"\n[spaces]\nroots = [\
                    { name = \"scratch\", kind = \"scratch\", per = \"person\", title = \"S\", path = \"/b/scratch\", mounted_at = \"/scratch\" }, \
                    { name = \"project\", kind = \"project\", title = \"P\", path = \"/b/project\", node_path = \"/n/project\", mounted_at = \"/project\" }, \
                    { name = \"hidden\", kind = \"project\", title = \"H\", path = \"/b/hidden\" }]\n";
        Config::from_text(text).unwrap().spaces.roots.clone()
    }

    fn name(text: &str) -> SpaceName {
        text.parse().unwrap()
    }

    fn place(named: Named<'_>) -> &str {
        match named {
            Named::Home => "home",
            Named::Space(seen) => &seen.bind.source,
        }
    }

    fn lies(name_of: &str, root: &str, owner: SpaceOwner) -> Space {
        Space { name: name(name_of), root: root.parse().unwrap(), ..a_space(owner) }
    }

    #[test]
    fn one_s_own_go_by_two_names_and_what_sessions_do_not_see_by_none() {
        let (ada, grace) = (UserId::generate(), UserId::generate());
        let home = Space { kind: SpaceKind::Home, ..lies("home-ada", "home", person(ada, "ada")) };
        let group = SpaceOwner::Group("physics".parse().unwrap());
        let all = vec![
            (home, Reach::Write),
            (lies("scratch-ada", "scratch", person(ada, "ada")), Reach::Write),
            (lies("stars", "project", group.clone()), Reach::Write),
            (lies("data", "project", SpaceOwner::Everybody), Reach::Read),
            (lies("unseen", "hidden", group.clone()), Reach::Write),
            (lies("lost", "no-root", group), Reach::Write),
            (lies("scratch-grace", "scratch", person(grace, "grace")), Reach::Hidden),
        ];
        let sees = InSessions::of(all, ada, &roots());
        let at = |text: &str| {
            let named = sees.named(&name(text))?;
            Some((place(named).to_owned(), named.is_writable()))
        };
        for text in ["home", "home-ada"] {
            assert_eq!(at(text), Some(("home".into(), true)));
        }
        for text in ["scratch", "scratch-ada"] {
            assert_eq!(at(text), Some(("/b/scratch/scratch-ada".into(), true)));
        }
        assert_eq!(at("stars"), Some(("/n/project/stars".into(), true)));
        assert_eq!(at("data"), Some(("/n/project/data".into(), false)));
        for text in ["unseen", "lost", "scratch-grace", "home-grace", "project", "nobody-s"] {
            assert_eq!(at(text), None, "{text}");
        }
        let targets: Vec<&str> = sees.all().iter().map(|seen| seen.bind.target.as_str()).collect();
        assert_eq!(targets, ["/project/data", "/project/stars", "/scratch"]);
    }

    proptest! {
        #[test]
        fn no_name_leads_to_what_is_not_the_persons_and_every_place_lies_in_its_root(
            spaces in proptest::collection::vec(
                ("[a-c]{1,2}", 0..5_usize, 0..4_usize, any::<bool>(), proptest::sample::select(SpaceState::ALL)), 0..8),
            asked in "(home|scratch|project|hidden|home-a|[a-c]{1,2})",
            member in any::<bool>(),
        ) {
            let (ada, grace, group) = (UserId::generate(), UserId::generate(), "physics".parse::<GroupName>().unwrap());
            let roots = roots();
            let groups = if member { vec![group.clone()] } else { vec![] };
            let all: Vec<(Space, Reach)> = spaces.into_iter().map(|(name_of, root, owner, writable, state)| {
                let owner = match owner {
                    0 => person(ada, "ada"),
                    1 => person(grace, "grace"),
                    2 => SpaceOwner::Group(group.clone()),
                    _ => SpaceOwner::Everybody,
                };
                let root = ["scratch", "project", "hidden", "no-root", "home"][root];
                let kind = if root == "home" { SpaceKind::Home } else { SpaceKind::Project };
                let space = Space { writable, state, kind, ..lies(&name_of, root, owner) };
                let may = reach(&space, ada, Groups::Known(&groups)).unwrap();
                (space, may)
            }).collect();
            let sees = InSessions::of(all.clone(), ada, &roots);
            let asked = name(&asked);
            match sees.named(&asked) {
                None => prop_assert!(asked.as_str() != HOME_SPACE),
                Some(Named::Home) => {
                    let own = |space: &Space| space.kind == SpaceKind::Home && space.owner_id() == Some(ada);
                    let is_own = all.iter().any(|(space, _)| space.name == asked && own(space));
                    prop_assert!(is_own || asked.as_str() == HOME_SPACE);
                }
                Some(Named::Space(seen)) => {
                    let (_, may) = all.iter().find(|(space, _)| space.id == seen.space.id).unwrap();
                    prop_assert!(*may > Reach::Hidden && seen.space.state == SpaceState::Present);
                    prop_assert_eq!(seen.bind.writable, *may == Reach::Write);
                    let by_root = seen.space.owner_id() == Some(ada) && seen.space.root.as_str() == asked.as_str();
                    prop_assert!(seen.space.name == asked || by_root);
                    let root = roots.iter().find(|root| root.name == seen.space.root).unwrap();
                    let place = std::path::Path::new(&seen.bind.source);
                    prop_assert_eq!(place.parent(), root.node_path.as_deref().or(Some(root.path.as_path())));
                }
            }
        }
    }
}
