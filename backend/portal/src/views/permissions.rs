//! Who may do what with one thing: a line for each, and what can be chosen for them.

use eirene_files_protocol::{Accounts, AclEntry, Permissions, RelativePath, Rights, Share, Who};
use eirene_services::files::lists::{Danger, HandedOn, in_effect, unmasked};
use eirene_services::files::path::{last_name, shown};
use eirene_words::Words;
use serde::Serialize;

use super::files::{Crumb, Ground, raw};
use super::layout::Layout;
use super::shown::plain;
use super::{Choice, Field, FormError};
use crate::pages::Page;

/// What takes somebody off the list.
pub(crate) const OFF: &str = "off";

/// A line of an access control list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AclRow {
    /// Whom it is about.
    pub(crate) who: String,
    /// What they may.
    pub(crate) may: String,
}

/// A line that can be changed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ListRow {
    /// Whom it is about.
    pub(crate) label: String,
    /// The same as the form sends it.
    pub(crate) who: String,
    /// What they may.
    pub(crate) may: String,
    /// What they could.
    pub(crate) choices: Vec<Choice>,
}

/// What a form said, to be shown again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Typed {
    /// For each line what is to become of it: rights, or [`OFF`].
    pub(crate) lines: Vec<(Who, String)>,
    /// Whether a group is to be added, and not a person.
    pub(crate) new_is_group: bool,
    /// What they are called.
    pub(crate) new_name: String,
    /// What they are to get.
    pub(crate) new_may: String,
    /// What is made in a directory from now on.
    pub(crate) handed_on: HandedOn,
    /// Whether with all that is in it.
    pub(crate) recursive: bool,
}

/// Who may do what with one thing.
#[derive(Debug, Serialize)]
pub(crate) struct PermissionsPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The space.
    pub(crate) ground: Ground,
    /// The way here.
    pub(crate) crumbs: Vec<Crumb>,
    /// Name as shown.
    pub(crate) name: String,
    /// Its own page.
    pub(crate) entry_href: String,
    /// Its path as forms send it.
    pub(crate) raw: String,
    /// Whether it is a directory.
    pub(crate) is_directory: bool,
    /// Whether the file system keeps lists.
    pub(crate) lists: bool,
    /// Why it cannot be changed here; empty where it can.
    pub(crate) fixed: String,
    /// Lines.
    pub(crate) rows: Vec<ListRow>,
    /// A person or a group.
    pub(crate) new_kinds: Vec<Choice>,
    /// What they are called.
    pub(crate) new_name: Field,
    /// What they get.
    pub(crate) new_mays: Vec<Choice>,
    /// What is made in a directory from now on; none for what is none, and without lists.
    pub(crate) handed_on: Vec<Choice>,
    /// A directory's list for what is made in it.
    pub(crate) default: Vec<AclRow>,
    /// Whether with all that is in it.
    pub(crate) recursive: bool,
    /// What is wrong with what was sent.
    pub(crate) errors: Vec<FormError>,
    /// What would come of it that is seldom meant.
    pub(crate) dangers: Vec<String>,
}

impl Page for PermissionsPage {
    const TEMPLATE: &'static str = "pages/files/permissions.html";
}

/// Who is meant, as the form sends it.
pub(crate) fn word(who: Who) -> String {
    match who {
        Who::Owner => "owner".to_owned(),
        Who::User(number) => format!("user:{number}"),
        Who::OwningGroup => "owning_group".to_owned(),
        Who::Group(number) => format!("group:{number}"),
        Who::Mask => "mask".to_owned(),
        Who::Other => "other".to_owned(),
    }
}

/// What a user or a group is called, or its number.
pub(crate) fn called(words: &Words, who: Who, accounts: &Accounts) -> String {
    let (key, number, name) = match who {
        Who::Owner => return words.get("browser.acl_owner"),
        Who::OwningGroup => return words.get("browser.acl_owning_group"),
        Who::Mask => return words.get("browser.acl_mask"),
        Who::Other => return words.get("browser.acl_other"),
        Who::User(number) => ("browser.acl_user", number, accounts.users.get(&number)),
        Who::Group(number) => ("browser.acl_group", number, accounts.groups.get(&number)),
    };
    words.fill(key, &[("n", &name.map_or_else(|| number.to_string(), |name| plain(name.as_str())))])
}

impl AclRow {
    /// Lines as they count.
    pub(crate) fn all(words: &Words, list: Option<&Vec<AclEntry>>, accounts: &Accounts) -> Vec<Self> {
        let lines = list.map(|list| unmasked(list)).unwrap_or_default();
        lines.iter().map(|line| Self::new(words, line, accounts)).collect()
    }

    fn new(words: &Words, line: &AclEntry, accounts: &Accounts) -> Self {
        let rights = [(4, "browser.acl_read"), (2, "browser.acl_write"), (1, "browser.acl_run")];
        let may: Vec<String> =
            rights.iter().filter(|(bit, _)| line.may.bits() & bit != 0).map(|(_, key)| words.get(key)).collect();
        let may = if may.is_empty() { words.get("browser.acl_nothing") } else { may.join(", ") };
        Self { who: called(words, line.who, accounts), may }
    }
}

/// The letters of permission bits.
pub(crate) fn letters(bits: u16) -> String {
    [6, 3, 0].map(|shift| Rights::from_bits(bits >> shift).to_string()).concat()
}

/// What can be chosen in a word.
pub(crate) fn shares(words: &Words, now: Option<Share>) -> Vec<Choice> {
    let now = now.map_or("", |share| match share {
        Share::Private => "private",
        Share::GroupReads => "group_reads",
        Share::GroupWrites => "group_writes",
    });
    let choice = |(value, key)| Choice::new(value, words.get(key), now);
    let all = [("private", "js.share_private"), ("group_reads", "js.share_reads"), ("group_writes", "js.share_writes")];
    all.map(choice).into()
}

/// What somebody may be given; what they have now is among it, whatever it is.
fn mays(words: &Words, is_directory: bool, now: &str, chosen: &str) -> Vec<Choice> {
    let directory = [
        ("---", "permissions.nothing"),
        ("r-x", "permissions.look"),
        ("rwx", "permissions.change"),
        ("--x", "permissions.through"),
    ];
    let file = [
        ("---", "permissions.nothing"),
        ("r--", "permissions.look"),
        ("rw-", "permissions.change"),
        ("r-x", "permissions.run"),
        ("rwx", "permissions.change_run"),
    ];
    let known: &[(&str, &str)] = if is_directory { &directory } else { &file };
    let mut choices: Vec<Choice> =
        known.iter().map(|(value, key)| Choice::new(*value, words.get(key), chosen)).collect();
    if !now.is_empty() && known.iter().all(|(value, _)| *value != now) {
        choices.push(Choice::new(now, words.fill("permissions.as_now", &[("letters", now)]), chosen));
    }
    choices
}

impl Typed {
    /// What a form says that nobody has touched.
    pub(crate) fn untouched(now: &Permissions, is_directory: bool) -> Self {
        let lines = in_effect(now).iter().map(|line| (line.who, line.may.to_string())).collect();
        let new_may = if is_directory { "r-x" } else { "r--" }.to_owned();
        Self { lines, new_may, ..Self::default() }
    }
}

impl PermissionsPage {
    /// Of one thing, with what was typed.
    pub(crate) fn new(
        words: &Words,
        layout: Layout,
        ground: Ground,
        (path, is_directory): (&RelativePath, bool),
        (now, typed): (&Permissions, &Typed),
    ) -> Self {
        let name = last_name(path);
        let fixed = match (ground.writable, now.mine) {
            (false, _) => words.get("permissions.read_only"),
            (true, false) => words.get("js.not_yours"),
            (true, true) => String::new(),
        };
        let before = in_effect(now);
        let row = |(who, chosen): &(Who, String)| {
            let may = before.iter().find(|line| line.who == *who).map(|line| line.may.to_string()).unwrap_or_default();
            let mut choices = mays(words, is_directory, &may, chosen);
            if matches!(who, Who::User(_) | Who::Group(_)) {
                choices.push(Choice::new(OFF, words.get("permissions.off"), chosen));
            }
            let label = match who {
                Who::Owner if now.mine => words.get("permissions.you"),
                Who::OwningGroup => called(words, Who::Group(now.group), &now.accounts),
                who => called(words, *who, &now.accounts),
            };
            let shown = choices.iter().find(|choice| choice.selected).map(|choice| choice.label.clone());
            ListRow { label, who: word(*who), may: shown.unwrap_or_default(), choices }
        };
        let handed = match typed.handed_on {
            HandedOn::Keep => "keep",
            HandedOn::Same => "same",
            HandedOn::Nothing => "nothing",
        };
        let mut handed_on = Vec::new();
        if is_directory && now.lists {
            handed_on.push(Choice::new("keep", words.get("permissions.handed_keep"), handed));
            handed_on.push(Choice::new("same", words.get("permissions.handed_same"), handed));
            if now.default.is_some() {
                handed_on.push(Choice::new("nothing", words.get("permissions.handed_nothing"), handed));
            }
        }
        let new_kind = if typed.new_is_group { "group" } else { "person" };
        let kinds = [("person", "permissions.person"), ("group", "permissions.group")];
        Self {
            crumbs: ground.crumbs(path),
            name: plain(&shown(name.as_ref().map_or(&b""[..], |name| name.as_bytes())).0),
            entry_href: ground.entry_href(path.as_bytes()),
            raw: raw(path.as_bytes()),
            is_directory,
            lists: now.lists,
            fixed,
            rows: typed.lines.iter().map(row).collect(),
            new_kinds: kinds.map(|(value, key)| Choice::new(value, words.get(key), new_kind)).into(),
            new_name: Field::new(&typed.new_name),
            new_mays: mays(words, is_directory, "", &typed.new_may),
            handed_on,
            default: AclRow::all(words, now.default.as_ref(), &now.accounts),
            recursive: typed.recursive,
            errors: Vec::new(),
            dangers: Vec::new(),
            layout,
            ground,
        }
    }

    /// With what is wrong with what was typed.
    pub(crate) fn with_errors(mut self, errors: Vec<FormError>) -> Self {
        self.new_name.error = FormError::text_of(&errors, "new_name");
        self.errors = errors;
        self
    }

    /// With what would come of it, to be agreed to.
    pub(crate) fn with_dangers(mut self, words: &Words, dangers: &[Danger]) -> Self {
        let text = |danger: &Danger| {
            words.get(match danger {
                Danger::LocksOut => "permissions.locks_out",
                Danger::OpensToRead => "permissions.opens_to_read",
                Danger::OpensToWrite => "permissions.opens_to_write",
            })
        };
        self.dangers = dangers.iter().map(text).collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use eirene_words::words;

    use super::*;

    #[test]
    fn what_somebody_may_now_can_always_be_kept() {
        for is_directory in [false, true] {
            for bits in 0..8 {
                let now = Rights::from_bits(bits).to_string();
                let choices = mays(words(), is_directory, &now, &now);
                let chosen: Vec<_> = choices.iter().filter(|choice| choice.selected).collect();
                assert_eq!(chosen.len(), 1, "{now}");
                assert_eq!(chosen[0].value, now);
            }
        }
    }

    #[test]
    fn letters_are_as_everywhere() {
        for (bits, text) in [(0o640, "rw-r-----"), (0o7777, "rwxrwxrwx"), (0, "---------"), (0o701, "rwx-----x")] {
            assert_eq!(letters(bits), text);
        }
    }
}
