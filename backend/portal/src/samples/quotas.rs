//! Quotas of the storage: a half answer about many, none asked for, a refusal, and no answer.

use std::collections::BTreeMap;

use eirene_core::account::Role;
use eirene_core::storage::{
    Bytes, Counted, Doubt, DoubtAbout, Files, Known, Limit, Partial, Pool, PoolId, Quota, QuotaOf, Why,
};
use eirene_services::storage::Quotas;
use eirene_words::words;

use super::{HOSTILE, Result, Samples};
use crate::views::Field;
use crate::views::layout::Place;
use crate::views::quotas::{AskedFor, Outcome, QuotasPage};

const GIB: u64 = 1 << 30;

impl Samples {
    /// The admins' page of quotas.
    pub(super) fn quotas(&mut self) -> Result<()> {
        let quota = |number: u32, used: Known<Bytes>, limit: Known<Limit<Bytes>>| Quota {
            id: QuotaOf::User.id(number),
            pool: Some(PoolId(1)),
            used,
            limit,
            files_used: Known::Known(Files(1_234_567)),
            files_limit: Known::Known(Limit::Unlimited),
            counted: Counted::ChunkFiles,
            files_at_least: number == 2002,
            measured_every_s: Known::Missing(Why::NotSupported),
        };
        let (used, missing) = (Known::Known(Bytes(42 * GIB)), Known::Missing(Why::DidNotAnswer));
        let at = Known::Known(Limit::At(Bytes(50 * GIB)));
        let idle = Quota {
            files_used: Known::Known(Files(0)),
            ..quota(9, Known::Known(Bytes(0)), Known::Known(Limit::Unlimited))
        };
        let half = Partial {
            value: vec![
                quota(2001, used, at),
                quota(2002, used, Known::Known(Limit::Unlimited)),
                quota(4_294_967_295, missing, at),
                idle,
            ],
            doubts: vec![Doubt {
                about: DoubtAbout::Whole,
                text: format!("Could not gather quota information {HOSTILE}"),
            }],
        };
        let nothing = || Partial { value: vec![], doubts: vec![] };
        let refused = Some((Why::Refused, "only root can query <b>arbitrary</b> user ids".to_owned()));
        let field = |value: &str, error: &str| Field { value: value.to_owned(), error: error.to_owned() };
        let asked = |last: Field| AskedFor { groups: false, first: field("2001", ""), last };
        let wrong = words().get("quotas.wrong_number");
        let cases = [
            ("admin-quotas", asked(field("2009", "")), Outcome::Told(Quotas { answer: half, missing: None })),
            ("admin-quotas-wrong", asked(field(HOSTILE, &wrong)), Outcome::NotAsked),
            ("admin-quotas-none", asked(Field::default()), Outcome::Told(Quotas { answer: nothing(), missing: None })),
            (
                "admin-quotas-refused",
                asked(Field::default()),
                Outcome::Told(Quotas { answer: nothing(), missing: refused }),
            ),
            ("admin-quotas-away", asked(Field::default()), Outcome::Trouble("The storage does not answer.".to_owned())),
        ];
        let pools = [Pool { id: PoolId(1), name: "<b>Default</b>".to_owned(), targets: vec![], mirrors: vec![] }];
        let names = BTreeMap::from([(2001, "ada".parse()?)]);
        for (name, asked, outcome) in cases {
            let layout = self.layout(Place::Storage, &words().get("quotas.title"), Role::Admin)?;
            self.add(name, &QuotasPage::new(words(), layout, asked, &outcome, &pools, &names, true))?;
        }
        Ok(())
    }
}
