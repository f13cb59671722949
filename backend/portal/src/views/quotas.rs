//! What people and groups use of the storage and may use, by number, as the storage itself counts it.

use std::collections::BTreeMap;

use eirene_core::Username;
use eirene_core::storage::{Known, Limit, Pool, Quota, QuotaId, Why};
use eirene_services::spaces::level::percent;
use eirene_services::storage::Quotas;
use eirene_words::Words;
use serde::Serialize;

use super::format;
use super::layout::Layout;
use super::session::sentence;
use super::space::why;
use super::storage::pool_name;
use super::{Choice, Field};
use crate::pages::Page;

/// Most rows: a range may have many numbers that somebody has.
pub(crate) const MOST: usize = 500;

/// What was asked for, as it was typed.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedFor {
    /// Groups, not users.
    pub(crate) groups: bool,
    /// The first number.
    pub(crate) first: Field,
    /// The last number; empty for the first alone.
    pub(crate) last: Field,
}

/// What became of the question.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing was asked for, or nothing that could be.
    NotAsked,
    /// There is an answer, or why there is none.
    Told(Quotas),
    /// The storage did not answer: in a sentence.
    Trouble(String),
}

impl Outcome {
    /// The users whose names are wanted.
    pub(crate) fn users(&self) -> Vec<u32> {
        let Self::Told(quotas) = self else { return Vec::new() };
        let user = |quota: &&Quota| match quota.id {
            QuotaId::User(number) => Some(number),
            QuotaId::Group(_) | QuotaId::Project(_) => None,
        };
        let mut users: Vec<u32> = telling(quotas).iter().filter_map(user).collect();
        users.dedup();
        users
    }
}

/// One number in one pool.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct QuotaView {
    /// Whose.
    name: String,
    /// The pool; empty where there are none.
    pool: String,
    /// What is used, of what.
    used: String,
    /// The same in per cent; none where that is not known or nothing limits it.
    percent: Option<u8>,
    /// Files, of how many.
    files: String,
}

/// The page.
#[derive(Debug, Serialize)]
pub(crate) struct QuotasPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// People or groups.
    of: Vec<Choice>,
    /// The first number.
    first: Field,
    /// The last number.
    last: Field,
    /// Rows, as the storage has them.
    rows: Vec<QuotaView>,
    /// Who is not shown: a sentence each.
    remarks: Vec<String>,
    /// What is doubtful about the answer, as the storage says it.
    doubts: Vec<String>,
    /// Why there are no rows; empty where there are.
    nothing: String,
    /// How limits are set; empty where the portal cannot set any.
    note: String,
}

impl Page for QuotasPage {
    const TEMPLATE: &'static str = "pages/admin/quotas.html";
}

impl QuotasPage {
    /// Shows what was told; `pools` are those of the last look, `names` those of users, `sets` whether the portal can set limits.
    pub(crate) fn new(
        words: &Words,
        layout: Layout,
        asked: AskedFor,
        outcome: &Outcome,
        pools: &[Pool],
        names: &BTreeMap<u32, Username>,
        sets: bool,
    ) -> Self {
        let chosen = if asked.groups { "group" } else { "user" };
        let choice = |value: &str, key: &str| Choice::new(value, words.get(key), chosen);
        let (mut rows, mut remarks, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
        let mut note = if sets { words.get("quotas.note") } else { String::new() };
        let nothing = match outcome {
            Outcome::NotAsked => words.get("quotas.not_asked"),
            Outcome::Trouble(text) => text.clone(),
            Outcome::Told(quotas) => {
                let telling = telling(quotas);
                let idle = quotas.answer.value.len() - telling.len();
                rows = telling.iter().take(MOST).map(|quota| of_quota(words, quota, pools, names)).collect();
                let more = telling.len() - rows.len();
                let said = |key: &str, count: usize| (count > 0).then(|| words.count(key, count as u64));
                remarks = said("quotas.idle", idle).into_iter().chain(said("quotas.more", more)).collect();
                doubts = quotas.answer.doubts.iter().map(|doubt| doubt.text.clone()).collect();
                match &quotas.missing {
                    Some((Why::NotSupported | Why::Unlicensed, text)) => {
                        note.clear();
                        sentence(text)
                    }
                    Some((_, text)) => words.fill("storage_page.not_told", &[("said", text)]),
                    None if rows.is_empty() => words.get("quotas.nobody"),
                    None => String::new(),
                }
            }
        };
        Self {
            layout,
            of: vec![choice("user", "quotas.users"), choice("group", "quotas.groups")],
            first: asked.first,
            last: asked.last,
            rows,
            remarks,
            doubts,
            nothing,
            note,
        }
    }
}

/// The rows that say something: whoever uses nothing and may use anything is most of a range. What is not known is said.
fn telling(quotas: &Quotas) -> Vec<&Quota> {
    let unlimited = |limit: Option<bool>| limit.unwrap_or(true);
    let is_idle = |quota: &Quota| {
        // Who was not measured uses nothing, as far as anybody knows; their limits are known then.
        let used = match quota.used {
            Known::Known(used) => used.0 == 0,
            Known::Missing(why) => why == Why::NeverMeasured && quota.limit.value().is_some(),
        };
        let files = quota.files_used.value().is_none_or(|files| files.0 == 0);
        let bytes_free = quota.limit.value().map(|limit| *limit == Limit::Unlimited);
        let files_free = quota.files_limit.value().map(|limit| *limit == Limit::Unlimited);
        used && files && unlimited(bytes_free) && unlimited(files_free)
    };
    quotas.answer.value.iter().filter(|quota| !is_idle(quota)).collect()
}

fn of_quota(words: &Words, quota: &Quota, pools: &[Pool], names: &BTreeMap<u32, Username>) -> QuotaView {
    let name = match quota.id {
        QuotaId::User(number) => names.get(&number).map(|name| format!("{name} ({number})")),
        QuotaId::Group(_) | QuotaId::Project(_) => None,
    };
    let (QuotaId::User(number) | QuotaId::Group(number) | QuotaId::Project(number)) = quota.id;
    let pool = quota.pool.map(|pool| {
        let known = pools.iter().find(|known| known.id == pool);
        known.map_or_else(|| pool.0.to_string(), pool_name)
    });
    let bytes = |n: u64| format::bytes(words, n);
    let at_least = |n: u64| if quota.files_at_least { format!("{}+", format::number(n)) } else { format::number(n) };
    let (used, limit) = (told(quota.used, |n| n.0), most(quota.limit, |n| n.0));
    let (files, files_limit) = (told(quota.files_used, |n| n.0), most(quota.files_limit, |n| n.0));
    QuotaView {
        name: name.unwrap_or_else(|| words.fill("activity.number", &[("number", &number.to_string())])),
        pool: pool.unwrap_or_default(),
        percent: match (used, limit) {
            (Ok(used), Ok(Some(most))) => Some(percent(used, most).min(100)),
            _ => None,
        },
        used: amount(words, used, limit, bytes, bytes),
        files: amount(words, files, files_limit, at_least, format::number),
    }
}

fn told<T>(value: Known<T>, number: impl FnOnce(T) -> u64) -> Result<u64, Why> {
    match value {
        Known::Known(value) => Ok(number(value)),
        Known::Missing(why) => Err(why),
    }
}

/// A limit; none is no limit.
fn most<T>(limit: Known<Limit<T>>, number: impl FnOnce(T) -> u64) -> Result<Option<u64>, Why> {
    match limit {
        Known::Known(Limit::At(most)) => Ok(Some(number(most))),
        Known::Known(Limit::Unlimited) => Ok(None),
        Known::Missing(why) => Err(why),
    }
}

/// What is used, of what; what is not known says why.
fn amount(
    words: &Words,
    used: Result<u64, Why>,
    limit: Result<Option<u64>, Why>,
    shown: impl Fn(u64) -> String,
    of: impl Fn(u64) -> String,
) -> String {
    match (used, limit) {
        (Ok(used), Ok(Some(most))) => words.fill("my_spaces.used_of", &[("used", &shown(used)), ("limit", &of(most))]),
        (Ok(used), Ok(None)) => words.fill("my_spaces.used_free", &[("used", &shown(used))]),
        (Ok(used), Err(_)) => words.fill("quotas.limit_unknown", &[("used", &shown(used))]),
        (Err(missing), Ok(Some(most))) => {
            words.fill("quotas.unknown_of", &[("limit", &of(most)), ("why", &why(words, missing))])
        }
        (Err(missing), Ok(None) | Err(_)) => why(words, missing),
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::{Bytes, Counted, Doubt, DoubtAbout, Files, Partial, PoolId, QuotaOf};
    use eirene_words::words;

    use super::*;

    fn quota(number: u32, used: Known<Bytes>, limit: Known<Limit<Bytes>>) -> Quota {
        Quota {
            id: QuotaOf::User.id(number),
            pool: Some(PoolId(2)),
            used,
            limit,
            files_used: Known::Known(Files(0)),
            files_limit: Known::Known(Limit::Unlimited),
            counted: Counted::ChunkFiles,
            files_at_least: true,
            measured_every_s: Known::Missing(Why::NotSupported),
        }
    }

    #[test]
    fn who_uses_nothing_is_counted_and_what_is_not_known_is_said() {
        let (none, gib) = (Known::Known(Bytes(0)), Known::Known(Limit::At(Bytes(1 << 30))));
        let free = Known::Known(Limit::Unlimited);
        let quotas = Quotas {
            answer: Partial {
                value: vec![
                    quota(1, none, free),
                    quota(2, none, gib),
                    quota(3, Known::Known(Bytes(1 << 29)), gib),
                    quota(4, Known::Missing(Why::DidNotAnswer), gib),
                    quota(5, Known::Missing(Why::DidNotAnswer), Known::Missing(Why::DidNotAnswer)),
                ],
                doubts: vec![Doubt { about: DoubtAbout::Whole, text: "half of it".into() }],
            },
            missing: None,
        };
        let outcome = Outcome::Told(quotas);
        assert_eq!(outcome.users(), [2, 3, 4, 5]);
        let names = BTreeMap::from([(3, "ada".parse().unwrap())]);
        let pools = [Pool { id: PoolId(2), name: "fast".into(), targets: vec![], mirrors: vec![] }];
        let layout = Layout::for_nobody(words(), "");
        let page = QuotasPage::new(words(), layout, AskedFor::default(), &outcome, &pools, &names, true);
        let names: Vec<&str> = page.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["Number 2", "ada (3)", "Number 4", "Number 5"]);
        assert_eq!((page.rows[1].pool.as_str(), page.rows[1].percent), ("fast (2)", Some(50)));
        assert!(page.rows[2].used.contains("1\u{a0}GiB") && page.rows[2].percent.is_none(), "{:?}", page.rows[2]);
        assert_eq!(page.rows[3].used, why(words(), Why::DidNotAnswer));
        assert!(page.rows[0].files.starts_with("0+"), "{:?}", page.rows[0]);
        assert_eq!((page.remarks.len(), page.doubts.as_slice()), (1, &["half of it".to_owned()][..]));
        assert!(page.nothing.is_empty() && !page.note.is_empty());
    }

    #[test]
    fn where_the_portal_can_set_none_nobody_is_told_how_they_are_set() {
        for (missing, has_note) in [(Why::NotSupported, false), (Why::Refused, true)] {
            let answer = Partial { value: vec![], doubts: vec![] };
            let outcome = Outcome::Told(Quotas { answer, missing: Some((missing, "a reason".into())) });
            let (layout, none) = (Layout::for_nobody(words(), ""), BTreeMap::new());
            let page = QuotasPage::new(words(), layout, AskedFor::default(), &outcome, &[], &none, true);
            assert_eq!((page.nothing.is_empty(), !page.note.is_empty()), (false, has_note), "{missing:?}");
        }
        // What a mounted file system counts is shown, and set by its own tools alone.
        let answer =
            Partial { value: vec![quota(3, Known::Known(Bytes(1)), Known::Known(Limit::Unlimited))], doubts: vec![] };
        let outcome = Outcome::Told(Quotas { answer, missing: None });
        let (layout, none) = (Layout::for_nobody(words(), ""), BTreeMap::new());
        let page = QuotasPage::new(words(), layout, AskedFor::default(), &outcome, &[], &none, false);
        assert_eq!((page.rows.len(), page.note.as_str()), (1, ""));
    }
}
